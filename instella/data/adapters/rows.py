"""Rows of .jsonl, .json and .parquet files, one strict reading for all.

No types are guessed: a row is what its own bytes say, so the result depends neither on
the order of rows nor on how many are read at a time. A file whose name ends with .json
(.json.gz, .json.zst) holds one array of rows, or one row a line: its first sign tells.

The hub's formats are read here and not with the ``datasets`` library. Its JSON reader
infers one schema from the first rows, so a column that is null there and text later ends
the reading far from the cause, a byte order mark changes the schema, and an error names
no row (huggingface/datasets#7222, #8241). For Parquet it hands on what pyarrow reads; we
ask pyarrow for the needed columns in batches. Memory holds one batch, or one row.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes, parse_json
from instella.data.adapters.arrays import array_objects, begins_array
from instella.data.adapters.files import lines, opened, source_files
from instella.errors import VerificationError

LINES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
LINES_OR_ARRAY = (".json", ".json.gz", ".json.zst")
PARQUET = (".parquet",)
# A larger batch is no faster, and holds more of a file with long rows in memory.
PARQUET_BATCH_ROWS = 128
PARQUET_BUFFER_BYTES = 1 << 20
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
        return present(found, self.key, column)

    def text(self, column: str) -> str:
        """The text of a column; VerificationError when it is something else."""
        return text_of(self.value(column), self.key, column)


def present(value: Any, key: str, column: str) -> Any:
    """``value`` of row ``key``; VerificationError for None: the column is missing or null."""
    if value is None:
        raise VerificationError(f"{key}: column {column} is missing or null")
    return value


def text_of(value: Any, key: str, column: str) -> str:
    """``value`` of row ``key`` if it is a text; VerificationError, also when missing or null."""
    if not isinstance(present(value, key, column), str):
        kind = type(value).__name__
        raise VerificationError(f"{key}: column {column} is {kind}, need a text")
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
    for name in source_files(folder, patterns, LINES + LINES_OR_ARRAY + PARQUET):
        path = folder / name
        if name.endswith(PARQUET):
            rows = _parquet_rows(path, name, columns, batch_rows)
        else:
            rows = _json_rows(path, name)
        for number, values in rows:
            key = f"{name}#{number}"
            if not isinstance(values, dict):
                raise VerificationError(f"{key}: the row is not an object")
            yield Row(key, values)


def _json_rows(path: Path, name: str) -> Iterator[tuple[int, Any]]:
    if name.endswith(LINES_OR_ARRAY):
        with opened(path) as file:
            is_array = begins_array(file)
        if is_array:
            with opened(path) as file:
                for number, data in array_objects(file, name):
                    yield number, _strict(data, f"{name}#{number}")
            return
    for number, line in lines(path):
        yield number, _strict(line, f"{name}#{number}")


def _strict(data: bytes, where: str) -> Any:
    value = parse_json(data, where)
    if SURROGATE.search(data):
        try:
            json_bytes(value)
        except UnicodeEncodeError:
            raise VerificationError(f"{where}: half a surrogate pair, not Unicode") from None
        except RecursionError:
            raise VerificationError(f"{where}: nested too deep") from None
    return value


def _parquet_rows(
    path: Path, name: str, columns: tuple[str, ...], batch_rows: int
) -> Iterator[tuple[int, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    wanted = sorted({column.partition(".")[0] for column in columns})
    try:
        with pq.ParquetFile(path, buffer_size=PARQUET_BUFFER_BYTES) as file:
            names = file.schema_arrow.names
            if len(set(names)) != len(names):
                raise VerificationError(f"{path}: a column stands twice")
            for batch in file.iter_batches(batch_rows, columns=wanted):
                for values in _values(batch, name, number):
                    number += 1
                    yield number, values
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        what = " ".join(str(error).split())
        raise VerificationError(f"{path} after row {number}: damaged Parquet: {what}") from None


def _values(batch: Any, name: str, before: int) -> list[Any]:
    """The rows of a Parquet batch that follows ``before`` rows of the file."""
    try:
        return batch.to_pylist()
    except (ValueError, OverflowError):
        for row in range(batch.num_rows):
            for column in batch.schema.names:
                _check_cell(batch.column(column)[row], f"{name}#{before + row + 1}", column)
        raise


def _check_cell(cell: Any, key: str, column: str) -> None:
    try:
        cell.as_py()
    except UnicodeDecodeError as error:
        raise VerificationError(f"{key}: column {column} is not UTF-8: {error}") from None
    except (ValueError, OverflowError) as error:
        raise VerificationError(f"{key}: column {column} is out of range: {error}") from None
