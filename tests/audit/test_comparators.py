"""Each format's comparator: what differs, and hostile files in one line."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from instella import canonical
from instella.audit.comparators import compare_files
from instella.audit.comparators.finding import Comparison


def compare(folder: Path, name: str, left: bytes, right: bytes) -> Comparison:
    for side, data in (("a", left), ("b", right)):
        (folder / side).mkdir()
        (folder / side / name).write_bytes(data)
    found = compare_files(name, folder / "a" / name, folder / "b" / name)
    assert all(line.isprintable() for line in (found.summary, *map(str, found.findings)))
    return found


def written(folder: Path, write: Any, value: Any) -> bytes:
    path = folder / "file"
    write(path, value)
    return path.read_bytes()


def test_tensors(tmp_path: Path) -> None:
    one = {"a": torch.zeros(2, 3), "b": torch.arange(6.0), "c": torch.ones(1)}
    other = {**one, "b": one["b"].clone(), "d": one["c"]}
    del other["c"]
    other["b"][4] = float(np.nextafter(np.float32(4), np.float32(5)))
    data = [written(tmp_path, canonical.write_safetensors, side) for side in (one, other)]
    found = compare(tmp_path, "model.safetensors", *data)
    assert found.summary == "3 of 4 tensors differ"
    assert str(found.findings[0]) == (
        "b[4]: 4.0 | 4.0000005 (1 of 6 elements differ, ULP max 1, median 1)"
    )
    assert [item.place for item in found.findings[1:]] == ["c", "d"]


def test_arrays(tmp_path: Path) -> None:
    one = np.arange(12, dtype=np.uint16).reshape(3, 4)
    other = one.copy()
    other[1, 2] ^= 8
    data = [written(tmp_path, canonical.write_npy, side) for side in (one, other)]
    found = compare(tmp_path, "tokens.npy", *data)
    assert str(found.findings[0]) == (
        "[1, 2]: 6 | 14 (1 of 12 elements differ, difference max 8, median 8)"
    )


def test_arrays_of_other_shapes(tmp_path: Path) -> None:
    data = [written(tmp_path, canonical.write_npy, np.zeros(n)) for n in (2, 3)]
    assert compare(tmp_path, "a.npy", *data).summary == "dtype or shape differ"


def test_rows(tmp_path: Path) -> None:
    rows = [{"step": n, "loss": 0.5 * n} for n in range(1, 6)]
    data = [b"".join(map(canonical.json_bytes, rows))]
    rows[2]["loss"] = float(np.nextafter(1.5, 2))
    rows[4]["loss"] = 9.0
    data.append(b"".join(map(canonical.json_bytes, rows)))
    found = compare(tmp_path, "steps.jsonl", *data)
    assert found.summary == "2 rows differ, the first is row 3; 5 | 5 rows"
    assert str(found.findings[0]) == "row 3, loss: 1.5 | 1.5000000000000002 (ULP 1)"


def test_rows_that_one_lacks(tmp_path: Path) -> None:
    found = compare(tmp_path, "rows.jsonl", b"{}\n{}\n", b"{}\n")
    assert str(found.findings[0]) == "row 2: a row | no such row"


def test_documents(tmp_path: Path) -> None:
    one = {"a": [1, {"b": "x"}], "gone": None}
    other = {"a": [1, {"b": "y"}, 2]}
    found = compare(tmp_path, "a.json", canonical.json_bytes(one), canonical.json_bytes(other))
    assert [str(item) for item in found.findings] == [
        "$.a[1].b: 'x' | 'y'",
        "$.a[2]: nothing | 2",
        "$.gone: None | nothing",
    ]


def test_a_number_is_not_its_float(tmp_path: Path) -> None:
    found = compare(tmp_path, "a.json", b'{"a":1}\n', b'{"a":1.0}\n')
    assert found.summary == "1 values differ"


def test_tokenizers(tmp_path: Path) -> None:
    def made(vocab: dict[str, int], merges: list[Any], kind: str) -> bytes:
        model = {"type": "BPE", "vocab": vocab, "merges": merges}
        return canonical.json_bytes({"model": model, "normalizer": kind})

    one = made({"a": 0, "b": 1, "ab": 2}, [["a", "b"]], "NFC")
    other = made({"a": 0, "c": 1, "ac": 2}, [["a", "c"]], "NFD")
    found = compare(tmp_path, "tokenizer.json", one, other)
    assert found.summary == "vocabulary and merges and settings differ"
    assert [item.place for item in found.findings] == ["id 1", "merge 0", "$.normalizer"]
    assert found.findings[0].extent == "2 of 3 ids differ"


def test_tables(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    data = []
    for value in ("c", "d"):
        table = pa.table({"key": list(range(2000)), "text": ["a"] * 1500 + [value] * 500})
        data.append(written(tmp_path, lambda path, table: pq.write_table(table, path), table))
    found = compare(tmp_path, "rows.parquet", *data)
    assert str(found.findings[0]) == "row 1501, text: 'c' | 'd'"
    assert "2000 | 2000 rows" in found.summary


def test_plain_bytes(tmp_path: Path) -> None:
    left = b"one\n" * 300_000
    right = bytearray(left)
    right[1_100_002] ^= 1
    found = compare(tmp_path, "table.md", left, bytes(right))
    assert found.findings[0].place == "byte 1100002, line 275001"


def header(value: Any, body: bytes = b"", size: int | None = None) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


SPAN = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
HOSTILE = {
    "huge header": ("m.safetensors", header({}, size=1 << 62)),
    "cut": ("m.safetensors", b"\x01\x02"),
    "overlap": ("m.safetensors", header({"a": SPAN, "b": SPAN}, b"1234")),
    "gap": ("m.safetensors", header({"a": {**SPAN, "data_offsets": [4, 8]}}, b"12345678")),
    "beyond": ("m.safetensors", header({"a": SPAN}, b"12")),
    "trailing": ("m.safetensors", header({"a": SPAN}, b"12345")),
    "huge shape": ("m.safetensors", header({"a": {**SPAN, "shape": [1 << 62, 4]}}, b"1234")),
    "negative": ("m.safetensors", header({"a": {**SPAN, "shape": [-1]}}, b"1234")),
    "boolean": ("m.safetensors", header({"a": {**SPAN, "shape": [True]}}, b"1234")),
    "dtype": ("m.safetensors", header({"a": {**SPAN, "dtype": "F33"}}, b"1234")),
    "name twice": ("m.safetensors", header(b'{"a":1,"a":2}')),
    "name with a line feed": ("m.safetensors", header({"a\nclean": {**SPAN, "shape": [2]}})),
    "deep header": ("m.safetensors", header(b'{"a":' * 100_000)),
    "key twice": ("a.json", b'{"a":1,"a":2}\n'),
    "NaN": ("a.json", b'{"a":NaN}\n'),
    "deep": ("a.json", b"[" * 1_000_000),
    "huge number": ("a.json", b'{"a":' + b"9" * 10_000 + b"}"),
    "surrogate": ("a.json", b'{"a":"\\ud83d"}'),
    "deep row": ("a.jsonl", b"[" * 500_000 + b"\n"),
    "pickled array": ("a.npy", b"\x93NUMPY\x01\x00" + b"v\x00" + b"{'descr':'|O','fortran_order':False,'shape':(1,)}".ljust(117) + b"\n"),
    "code in the header": ("a.npy", b"\x93NUMPY\x01\x00" + b"v\x00" + b"__import__('os')".ljust(117) + b"\n"),
    "array beyond its file": ("a.npy", b"\x93NUMPY\x01\x00" + b"v\x00" + b"{'descr':'<f4','fortran_order':False,'shape':(9,)}".ljust(117) + b"\n"),
    "no table": ("a.parquet", b"PAR1" + os.urandom(64) + b"PAR1"),
    "no tokenizer": ("tokenizer.json", b'{"model":{"vocab":[]}}\n'),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_one_line_and_compared_as_bytes(tmp_path: Path, case: str) -> None:
    name, data = HOSTILE[case]
    found = compare(tmp_path, name, data, data + b"\n" if case == "surrogate" else b"other")
    if case == "surrogate":
        return
    assert "\n" not in found.summary and "bytes differ" in found.summary
    assert len(found.summary) < 1000
