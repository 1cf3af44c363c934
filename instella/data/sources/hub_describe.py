"""Rows and columns of one file, where they are cheap to know."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.canonical import parse_json
from instella.data.adapters.files import lines
from instella.data.sources.hub_trouble import Unreadable
from instella.errors import VerificationError

LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".json.gz", ".json.zst")
# Types of columns are learned from so many lines; rows are counted in all.
TYPED_LINES = 1000
TAIL_BYTES = 1 << 16
MAX_FOOTER_BYTES = 1 << 28
MAGIC = b"PAR1"
_TYPES = {
    str: "string", bool: "bool", int: "integer", float: "number", list: "list", dict: "object",
    type(None): "null",
}  # fmt: skip

Read = Callable[[int, int], bytes]


@dataclass(frozen=True)
class Described:
    """Number of rows and ``{column: type}``; None where unknown."""

    rows: int | None
    columns: Mapping[str, str] | None


def describe(path: str, size: int, at: Path | Read, say: Callable[[str], None]) -> Described:
    """Learn what a file holds from its footer or its lines.

    Args:
        path: its path in the repository; the end of the name says what it is.
        size: its bytes.
        at: the file on this disk, or a function that reads its bytes from ``start`` to
            ``end`` (left out) elsewhere; only footers are read from there.
        say: told why nothing could be learned.
    """
    found = Described(None, None)
    try:
        if path.endswith(".parquet"):
            found = _footer(size, _reader(at) if isinstance(at, Path) else at)
        elif path.endswith(LINES) and isinstance(at, Path):
            found = _count(at)
        "".join(found.columns or ()).encode("utf-8")
    except Unreadable as error:
        say(f"{path}: rows and columns stay unknown: {error}")
    except UnicodeError:
        say(f"{path}: rows and columns stay unknown: the name of a column is not Unicode")
    else:
        return found
    return Described(None, None)


def _reader(path: Path) -> Read:
    def read(start: int, end: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    return read


def _footer(size: int, read: Read) -> Described:
    """Number of rows and schema out of the last bytes of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if size < 12:
        raise Unreadable("too small for a Parquet file")
    tail = read(max(size - TAIL_BYTES, 0), size)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if tail[-4:] != MAGIC or not 8 < length <= min(size - 4, MAX_FOOTER_BYTES):
        raise Unreadable("no Parquet footer at its end")
    if length > len(tail):
        tail = read(size - length, size)
    try:
        metadata = pq.read_metadata(io.BytesIO(MAGIC + tail[-length:]))
        schema = metadata.schema.to_arrow_schema()
    except (pa.ArrowException, OSError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unreadable(f"damaged Parquet footer: {line}") from None
    return Described(metadata.num_rows, {field.name: str(field.type) for field in schema})


def _count(path: Path) -> Described:
    """Number of JSON lines, and the types that the columns of the first ones have."""
    rows = 0
    types: dict[str, set[str]] = {}
    try:
        for number, line in lines(path):
            rows += 1
            if rows <= TYPED_LINES:
                row = parse_json(line, f"line {number}")
                if not isinstance(row, dict):
                    raise VerificationError(f"line {number}: not an object")
                _add_types(row, types)
    except VerificationError as error:
        raise Unreadable(str(error)) from None
    return Described(rows, {name: "|".join(sorted(kinds)) for name, kinds in types.items()})


def _add_types(row: dict[str, Any], types: dict[str, set[str]]) -> None:
    for name, value in row.items():
        types.setdefault(name, set()).add(_TYPES[type(value)])
