"""Text and code files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instella.data.adapters import files, read
from instella.data.adapters.python_code import cut
from instella.data.documents import Text
from instella.data.select import select
from instella.errors import VerificationError
from instella.recipe.settings import Part


def documents(folder: Path, adapter: str, **options: Any) -> list[tuple[str, str]]:
    found = read(Part("s", adapter, options or None), folder)
    return [(d.key, d.text) for d in found if isinstance(d, Text)]


def test_blocks_and_whole_files(tmp_path: Path) -> None:
    text = "\ufeff\r\nfirst\r\nline\r\n \t\r\n\r\n  second\u2028same block\r\n"
    (tmp_path / "a.txt").write_bytes(text.encode())
    (tmp_path / "b.md").write_bytes(b"\n\n")
    (tmp_path / "c.bin").write_bytes(b"\xff")
    assert documents(tmp_path, "plain_text") == [
        ("a.txt#1", "first\nline"),
        ("a.txt#2", "  second\u2028same block"),
    ]
    whole = "\nfirst\nline\n \t\n\n  second\u2028same block\n"
    assert documents(tmp_path, "plain_text", split="whole") == [("a.txt", whole)]
    with pytest.raises(VerificationError, match=r"c\.bin: byte 0 is not UTF-8"):
        documents(tmp_path, "plain_text", files="c.bin")


def test_code_is_cut_at_a_line(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "b.py").write_text("x = 1\ny = 22\nz = 3\n")
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "a.py").write_text("pass\n")
    assert documents(tmp_path, "python_code") == [
        ("a.py", "pass\n"), ("pkg/b.py", "x = 1\ny = 22\nz = 3\n"),
    ]  # fmt: skip
    assert documents(tmp_path, "python_code", files="pkg/*", max_characters=13) == [
        ("pkg/b.py", "x = 1\ny = 22\n")
    ]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LONGEST_ROW_BYTES", 1000)
    path = tmp_path / f"a.jsonl{suffix}"
    with pa.output_stream(path) as file:
        file.write(b"x" * 999 + b"\n" + b"y" * 5000)
    found = files.lines(path)
    assert next(found) == (1, b"x" * 999)
    with pytest.raises(VerificationError, match=r"line 2 has over 1,000 bytes"):
        next(found)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, "ab\ncd\n"), (6, "ab\ncd\n"), (5, "ab\n"), (3, "ab\n"), (2, "")],
)
def test_cut(limit: int | None, expected: str) -> None:
    assert cut("ab\ncd\n", limit) == expected


@pytest.mark.parametrize(
    ("adapter", "suffix", "text"),
    [
        ("plain_text", ".txt", "{}\n"),
        ("python_code", ".py", "x = '{}'\n"),
        ("text_rows", ".jsonl", '{{"text": "{}"}}\n'),
    ],
)
def test_the_first_documents_do_not_depend_on_how_files_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adapter: str, suffix: str, text: str
) -> None:
    for name in ("b", "c", "a"):
        (tmp_path / f"{name}{suffix}").write_text(text.format(name))

    def first(*names: str) -> list[str]:
        options = {"files": [f"{name}{suffix}" for name in names]} if names else None
        part = Part("s", adapter, options, max_documents=2)
        return [document.key for document in select(read(part, tmp_path), part)]

    expected = first()
    assert [key[0] for key in expected] == ["a", "b"]
    assert first("c", "b", "a") == first("b", "a", "c") == expected
    real = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda *where: reversed(list(real(*where))))
    assert first() == expected
