"""Rows of .jsonl, .json and .parquet files, one strict reading for all.

No types are guessed: a row is what its own bytes say, so the result depends neither on
the order of rows nor on how many are read at a time.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes, parse_json
from instella.data.adapters.files import BYTE_ORDER_MARK, lines, opened, source_files
from instella.errors import VerificationError

LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
ARRAYS = (".json", ".json.gz", ".json.zst")
PARQUET = (".parquet",)
PARQUET_BATCH_ROWS = 1024
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class Row:
    """One row: ``key`` is the file's path and the row's number, from 1."""

    key: str
    values: dict[str, Any]

    def value(self, column: str) -> Any:
        """The value of a column; ``a.b`` looks for ``b`` inside ``a``.

        Raises:
            VerificationError: the column is missing or null (the two are not told apart).
        """
        found: Any = self.values
        for name in column.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if found is None:
            raise VerificationError(f"{self.key}: column {column} is missing or null")
        return found

    def text(self, column: str) -> str:
        """The text of a column; VerificationError when it is something else."""
        value = self.value(column)
        if not isinstance(value, str):
            kind = type(value).__name__
            raise VerificationError(f"{self.key}: column {column} is {kind}, need a text")
        return value


def read_rows(
    folder: Path,
    patterns: tuple[str, ...],
    columns: tuple[str, ...],
    batch_rows: int = PARQUET_BATCH_ROWS,
) -> Iterator[Row]:
    """Rows of all matching files, the files sorted by path.

    Args:
        folder: files of the source's artifact.
        patterns: exact paths or patterns.
        columns: what is needed; only these are read from a Parquet file.
        batch_rows: Parquet rows read at a time; does not change the result.

    Raises:
        VerificationError: damaged or malformed data, with file and row.
    """
    for name in source_files(folder, patterns, LINES + ARRAYS + PARQUET):
        path = folder / name
        if name.endswith(PARQUET):
            rows = _parquet_rows(path, columns, batch_rows)
        elif name.endswith(LINES):
            rows = ((number, _strict(line, f"{name}#{number}")) for number, line in lines(path))
        else:
            rows = _array_rows(path, name)
        for number, values in rows:
            key = f"{name}#{number}"
            if not isinstance(values, dict):
                raise VerificationError(f"{key}: the row is not an object")
            yield Row(key, values)


def _strict(data: bytes, where: str) -> Any:
    value = parse_json(data, where)
    if SURROGATE.search(data):
        try:
            json_bytes(value)
        except UnicodeEncodeError:
            raise VerificationError(f"{where}: half a surrogate pair, not Unicode") from None
    return value


def _array_rows(path: Path, name: str) -> Iterator[tuple[int, Any]]:
    with opened(path) as file:
        data = file.read().removeprefix(BYTE_ORDER_MARK)
    rows = _strict(data, name)
    if not isinstance(rows, list):
        raise VerificationError(f"{name}: need a list of objects")
    yield from enumerate(rows, 1)


def _parquet_rows(
    path: Path, columns: tuple[str, ...], batch_rows: int
) -> Iterator[tuple[int, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    wanted = sorted({column.partition(".")[0] for column in columns})
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if len(set(names)) != len(names):
                raise VerificationError(f"{path}: a column stands twice")
            for batch in file.iter_batches(batch_rows, columns=wanted):
                for values in batch.to_pylist():
                    number += 1
                    yield number, values
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise VerificationError(f"{path} after row {number}: damaged Parquet: {error}") from None
