"""Rows of files: the same strict reading for every form."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from instella.data.adapters import read
from instella.data.adapters.rows import read_rows
from instella.data.documents import (
    Choice,
    Conversation,
    Document,
    Message,
    Preference,
    Problem,
    Text,
)
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Part


def documents(folder: Path, adapter: str = "text_rows", **options: Any) -> list[Document]:
    return list(read(Part("s", adapter, options or None), folder))


def texts(folder: Path, **options: Any) -> list[str]:
    return [d.text for d in documents(folder, **options) if isinstance(d, Text)]


def zst(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


ROWS = [{"text": "one"}, {"text": "zwei ä"}, {"text": "three"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", LINES),
        ("a.jsonl", b"\xef\xbb\xbf" + LINES),
        ("a.jsonl", LINES.rstrip()),
        ("a.jsonl", LINES.replace(b"\n", b"\r\n")),
        ("a.jsonl.gz", gzip.compress(LINES)),
        ("a.jsonl.gz", gzip.compress(b"\xef\xbb\xbf" + LINES)),
        ("a.jsonl.gz", gzip.compress(LINES[:20]) + gzip.compress(LINES[20:])),
        ("a.jsonl.zst", zst(LINES)),
        ("a.json", json.dumps(ROWS).encode()),
        ("a.json.gz", gzip.compress(b"\xef\xbb\xbf" + json.dumps(ROWS).encode())),
    ],
)
def test_the_same_rows_in_every_packing(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    (tmp_path / "source.json").write_bytes(b"[]")
    (tmp_path / "README.md").write_bytes(b"not rows")
    expected = [Text(f"{name}#{n}", row["text"]) for n, row in enumerate(ROWS, 1)]
    assert documents(tmp_path) == expected


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_only_lf_ends_a_row(character: str, tmp_path: Path) -> None:
    row = json.dumps({"text": f"a{character}b"}, ensure_ascii=character < "\x20")
    (tmp_path / "a.jsonl").write_bytes(row.encode() + b"\n" + LINES)
    assert texts(tmp_path) == [f"a{character}b", "one", "zwei ä", "three"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"text":"a","text":"b"}',
        b'{"text":"a","other":{"k":1,"k":2}}',
        b'{"text":"a","other":NaN}',
        b'{"text":"a","other":-Infinity}',
        b'{"text":"half a pair \\ud83d"}',
        b'{"text":"a","other":"\\uDC00"}',
        b'{"text":"\xff"}',
        b'{"text":"a"} {"text":"b"}',
        b'{"text":"a"',
        b'{"text":null}',
        b'{"txet":"a"}',
        b'{"text":5}',
        b'["text"]',
        b"5",
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("first", [b"", LINES])
def test_a_bad_row_is_refused_with_its_place(line: bytes, first: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(first + line + b"\n")
    number = first.count(b"\n") + 1
    with pytest.raises(VerificationError, match=rf"a\.jsonl#{number}\b"):
        documents(tmp_path)


def test_a_whole_surrogate_pair_is_a_character(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text":"\\ud83d\\ude00"}\n')
    assert texts(tmp_path) == ["\U0001f600"]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.json.gz"])
@pytest.mark.parametrize("cut", [1, 4, 20])
def test_a_packed_file_cut_short(name: str, cut: int, tmp_path: Path) -> None:
    plain = json.dumps(ROWS).encode() if ".json." in name else LINES
    data = zst(plain) if name.endswith("zst") else gzip.compress(plain)
    (tmp_path / name).write_bytes(data[:-cut])
    with pytest.raises(VerificationError, match="damaged or cut short"):
        documents(tmp_path)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_a_packed_file_of_other_bytes(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"this is not packed at all")
    with pytest.raises(VerificationError, match="damaged"):
        documents(tmp_path)


def test_parquet_in_any_chunks(tmp_path: Path) -> None:
    rows = [{"t": f"row {n}", "n": {"a": None if n < 40 else f"late {n}"}} for n in range(50)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=7)
    results = [
        [(row.key, row.values) for row in read_rows(tmp_path, ("*",), ("t", "n.a"), batch_rows)]
        for batch_rows in (1, 3, 1024)
    ]
    assert results[0] == results[1] == results[2]
    assert results[0][44] == ("a.parquet#45", rows[44])
    assert texts(tmp_path, text="t") == [row["t"] for row in rows]
    with pytest.raises(VerificationError, match=r"a\.parquet#1: column n\.a is missing or null"):
        documents(tmp_path, text="n.a")
    with pytest.raises(VerificationError, match=r"a\.parquet#1: column text is missing or null"):
        documents(tmp_path)


def test_null_and_missing_are_refused_alike_in_any_order(tmp_path: Path) -> None:
    messages = []
    for bad in ('{"text":null,"k":1}', '{"k":1}'):
        for place in (0, 2, 4):
            rows = ['{"text":"a"}'] * 4
            rows.insert(place, bad)
            (tmp_path / "a.jsonl").write_text("\n".join(rows))
            with pytest.raises(VerificationError) as caught:
                documents(tmp_path)
            messages.append(str(caught.value).replace(f"#{place + 1}", "#N"))
    assert set(messages) == {"a.jsonl#N: column text is missing or null"}


def test_files_are_read_sorted_by_path(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a/z.jsonl", "a.jsonl", "a/b.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        row = json.dumps({"text": name})
        path.write_text(f"[{row}]" if name.endswith("json") else row)
    assert texts(tmp_path) == ["a.jsonl", "a/b.json", "a/z.jsonl", "b.jsonl"]
    assert texts(tmp_path, files=["a/*"]) == ["a/b.json", "a/z.jsonl"]
    with pytest.raises(VerificationError, match="no file matches"):
        documents(tmp_path, files="c*")


def write_row(tmp_path: Path, row: Any) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row))


def test_each_type_of_document(tmp_path: Path) -> None:
    write_row(
        tmp_path,
        {"q": "Q?", "x": {"a": "A", "r": "R"}, "c": ["no", "yes"], "g": 1,
         "m": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]},
    )  # fmt: skip
    key = "a.jsonl#1"
    turns = Conversation(key, (Message("user", "hi"), Message("assistant", "ho")))
    roles = {"human": "user", "gpt": "assistant"}
    options = {"messages": "m", "role": "from", "content": "value", "roles": roles}
    assert documents(tmp_path, "chat_rows", **options) == [turns]
    pair = Conversation(key, (Message("user", "Q?"), Message("assistant", "A")))
    assert documents(tmp_path, "chat_rows", question="q", answer="x.a") == [pair]
    assert documents(tmp_path, "problem_rows", question="q", answer="x.a") == [
        Problem(key, "Q?", "A")
    ]
    columns = {"question": "q", "chosen": "x.a", "rejected": "x.r"}
    assert documents(tmp_path, "preference_rows", **columns) == [Preference(key, "Q?", "A", "R")]
    columns = {"question": "q", "choices": "c", "gold": "g"}
    assert documents(tmp_path, "choice_rows", **columns) == [Choice(key, "Q?", ("no", "yes"), 1)]


@pytest.mark.parametrize(
    ("adapter", "row"),
    [
        ("chat_rows", {"messages": []}),
        ("chat_rows", {"messages": "hi"}),
        ("chat_rows", {"messages": ["hi"]}),
        ("chat_rows", {"messages": [{"role": "tool", "content": "x"}]}),
        ("chat_rows", {"messages": [{"role": "user"}]}),
        ("choice_rows", {"question": "q", "choices": ["a"], "gold": 1}),
        ("choice_rows", {"question": "q", "choices": ["a"], "gold": True}),
        ("choice_rows", {"question": "q", "choices": ["a", 5], "gold": 0}),
        ("choice_rows", {"question": "q", "choices": "ab", "gold": 0}),
        ("problem_rows", {"question": "q", "answer": 5}),
        ("preference_rows", {"question": "q", "chosen": "a"}),
    ],
)
def test_rows_of_another_shape(adapter: str, row: Any, tmp_path: Path) -> None:
    write_row(tmp_path, row)
    with pytest.raises(VerificationError, match=r"a\.jsonl#1"):
        documents(tmp_path, adapter)


@pytest.mark.parametrize(
    ("adapter", "options"),
    [
        ("text_rows", {"txet": "a"}),
        ("text_rows", {"text": 5}),
        ("text_rows", {"files": [1]}),
        ("chat_rows", {"question": "q"}),
        ("chat_rows", {"question": "q", "answer": "a", "messages": "m"}),
        ("chat_rows", {"roles": {"human": "person"}}),
        ("chat_rows", {"roles": "user"}),
        ("no_rows", {}),
    ],
)
def test_bad_options_are_refused_before_the_folder_is_touched(
    adapter: str, options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(BadUse, match="source s"):
        read(Part("s", adapter, options), tmp_path / "missing")
