"""One array of rows in a file, read row by row."""

import io
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from instella.data.adapters import arrays, read
from instella.data.adapters.arrays import array_objects, begins_array
from instella.data.adapters.rows import read_rows
from instella.errors import VerificationError
from instella.recipe.settings import Part

from .samples import PACK, json_text, write, zst

NASTY = ['{"', "}]", "\\", '\\"', "[,", "\n", "é€", "\u2028", "a" * 40, "", "]\\\\"]


def objects(data: bytes) -> list[Any]:
    found = list(array_objects(io.BytesIO(data), "a.json"))
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    return [json.loads(text) for _, text in found]


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)

    def value(depth: int) -> Any:
        kind = draw.randrange(6 if depth < 3 else 4)
        if kind == 4:
            return [value(depth + 1) for _ in range(draw.randrange(3))]
        if kind == 5:
            return {draw.choice(NASTY): value(depth + 1)}
        return draw.choice([*NASTY, 5, -1.5e3, None, True])

    return [{"k": value(0), draw.choice(NASTY): value(0)} for _ in range(count)]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_same_rows_for_any_size_of_chunk(
    chunk: int, indent: int | None, ascii_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "CHUNK_BYTES", chunk)
    for seed in range(5):
        expected = rows(6, seed)
        data = json.dumps(expected, indent=indent, ensure_ascii=ascii_only).encode()
        assert objects(data) == expected
        assert objects(b"\xef\xbb\xbf  \r\n" + data + b"\n\n") == expected
        assert begins_array(io.BytesIO(b" \t" + data))


def test_an_empty_list_has_no_rows_and_lines_are_no_list() -> None:
    assert objects(b"[]") == objects(b" [ \n ] ") == []
    for data in (b'{"a":1}\n{"a":2}\n', b"", b"  ", b'"["'):
        assert not begins_array(io.BytesIO(data))
        with pytest.raises(VerificationError, match=r"a\.json: need a list"):
            objects(data)


@pytest.mark.parametrize("chunk", [1, 5, 1 << 20])
def test_a_list_cut_anywhere_is_refused(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "CHUNK_BYTES", chunk)
    data = b'[{"a": "x]}"}, {"b": [1, {"c": "\\""}]}]'
    for length in range(1, len(data)):
        with pytest.raises(VerificationError, match=r"#[12]: .*cut short"):
            objects(data[:length])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'[{"a":1} {"a":2}]', "#1: behind it"),
        (b'[{"a":1},]', "#2: the row is not an object"),
        (b'[{"a":1},5]', "#2: the row is not an object"),
        (b'[[{"a":1}]]', "#1: the row is not an object"),
        (b'[{"a":1}]]', "behind the list"),
        (b'[{"a":1}] {"a":2}', "behind the list"),
        (b'[,{"a":1}]', "#1: the row is not an object"),
    ],
)
def test_other_lists_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        objects(data)


def test_a_row_without_end_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 100)
    monkeypatch.setattr(arrays, "LONGEST_ROW_BYTES", 1000)
    with pytest.raises(VerificationError, match=r"#1: an object of over 1,000 bytes"):
        objects(b'[{"a": "' + b"x" * 5000)


@pytest.mark.parametrize(
    "bad",
    [
        '{"text":"a","text":"b"}',
        '{"text":NaN}',
        '{"text":"\\ud800"}',
        '{"text":01}',
        "{]",
        '{"text":"\\ud83d\\ude00","n":1e999}',
    ],
)
def test_each_row_is_parsed_strictly(bad: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"text":"a"},\n' + bad + "]")
    with pytest.raises(VerificationError, match=r"a\.json#2"):
        list(read(Part("s", "text_rows"), tmp_path))


def test_rows_of_any_depth_are_read_or_refused(tmp_path: Path) -> None:
    """Around the depth at which the interpreter gives up, in reading or in what follows."""
    text = '{"text":"\\ud83d\\ude00","n":'
    refused = 0
    for depth in (1, *range(880, 1000), 5000):
        (tmp_path / "a.jsonl").write_text(f"{text}{'[' * depth}{']' * depth}}}")
        try:
            assert len(list(read(Part("s", "text_rows"), tmp_path))) == 1
        except VerificationError:
            refused += 1
    assert 0 < refused < 121


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_json_files_hold_a_list_or_lines(suffix: str, tmp_path: Path) -> None:
    lines = [{"text": "one"}, {"text": "[two]"}]
    for folder in ("lines", "list"):
        data = json_text({"lines": "a.jsonl", "list": "a.json"}[folder], lines)
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"a.json{suffix}").write_bytes(PACK.get(suffix, bytes)(data))
        documents = list(read(Part("s", "text_rows"), tmp_path / folder))
        assert [(d.key, d.text) for d in documents] == [
            (f"a.json{suffix}#1", "one"),
            (f"a.json{suffix}#2", "[two]"),
        ]


def test_zstd_frames_one_after_another(tmp_path: Path) -> None:
    frames = [zst(b'{"text":"%d"}\n' % number) for number in range(3)]
    (tmp_path / "a.json.zst").write_bytes(b"".join(frames))
    assert [d.text for d in read(Part("s", "text_rows"), tmp_path)] == ["0", "1", "2"]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    peaks = []
    for count in (1_000, 8_000):
        big = [{"text": "x" * 2_000} for _ in range(count)]
        path = write(tmp_path / str(count), "a.json", big)
        del big
        tracemalloc.start()
        assert sum(1 for _ in read_rows(path.parent, ("*",), ("text",))) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] < 8 * arrays.CHUNK_BYTES
