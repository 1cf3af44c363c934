"""What a unit of a mixture became: files in scratch that a kill cannot tear.

A unit has a file of records, one line for each document that was met, and a file of plain
values for each column (token ids, label masks). ``NUMBER.json`` with their sizes and
SHA-256 gets its name last; a unit without it, or that differs from it, is made again.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from instella.canonical import parse_json, sha256_file, write_json
from instella.errors import VerificationError

RECORDS = "records"
WRITE_BUFFER = 1 << 18


@dataclass(frozen=True)
class Outcome:
    """What became of one document.

    Attributes:
        part: number of its part.
        held: ``SET/KEY`` of the held-out item for which it was left out.
        dropped: other reason for which it was left out.
        line: what the artifact's ledger or table says about it when it went in.
        amounts: what it adds to the report's sums.
        noted: what was out of the ordinary, with how often.
        columns: its values for each column, of that column's dtype.
    """

    part: int
    held: str | None = None
    dropped: str | None = None
    line: Mapping[str, Any] | None = None
    amounts: Mapping[str, int] = field(default_factory=dict)
    noted: Mapping[str, int] = field(default_factory=dict)
    columns: tuple[np.ndarray, ...] = ()


class Units:
    """The units of one stage in a folder.

    Args:
        folder: for nothing else.
        columns: name to dtype of each column.
    """

    def __init__(self, folder: Path, columns: Mapping[str, str]) -> None:
        self._folder = folder
        self._columns = {name: np.dtype(dtype) for name, dtype in columns.items()}

    def path(self, number: int, name: str) -> Path:
        """File of a unit's column, or of its records."""
        return self._folder / f"{number:06d}.{name}"

    def is_done(self, number: int) -> bool:
        """Whether the unit is there, every byte of it."""
        try:
            state = parse_json(self.path(number, "json").read_bytes(), "unit")
        except (OSError, VerificationError):
            return False
        return bool(state == self._state(number))

    def values(self, number: int) -> int | None:
        """Values in a unit's first column as its last file says; None if there is no such file."""
        try:
            state = parse_json(self.path(number, "json").read_bytes(), "unit")
            name, dtype = next(iter(self._columns.items()))
            return int(state[self.path(number, name).name][0]) // dtype.itemsize
        except (OSError, VerificationError, LookupError, TypeError):
            return None

    def _state(self, number: int) -> dict[str, Any] | None:
        paths = self._paths(number)
        if not all(path.is_file() for path in paths):
            return None
        return {path.name: _size_and_hash(path) for path in paths}

    def _paths(self, number: int) -> list[Path]:
        return [self.path(number, name) for name in (RECORDS, *self._columns)]

    def write(self, number: int, outcomes: Iterable[Outcome], enough: int | None = None) -> None:
        """Write a unit; several processes may write the same one at once.

        Each writes files under names of its own and renames them at the end. They hold the
        same bytes whoever wrote them, so it does not matter whose stay.

        Args:
            number: of the unit.
            outcomes: of its documents in their order.
            enough: stop behind the outcome with which the first column has so many values.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        own = f"{os.getpid()}-{os.urandom(8).hex()}"
        end, paths = self.path(number, "json"), self._paths(number)
        parts = {path: path.with_name(f"{path.name}.{own}") for path in (*paths, end)}
        try:
            self._fill([parts[path] for path in paths], outcomes, enough)
            write_json(parts[end], {path.name: _size_and_hash(parts[path]) for path in paths})
            for path, part in parts.items():
                part.rename(path)
        finally:
            for part in parts.values():
                part.unlink(missing_ok=True)

    def _fill(self, paths: list[Path], outcomes: Iterable[Outcome], enough: int | None) -> None:
        size = 0
        with ExitStack() as stack:
            records, *files = (stack.enter_context(path.open("wb", WRITE_BUFFER)) for path in paths)
            for outcome in outcomes:
                records.write(_record(outcome))
                for values, dtype, file in zip(
                    outcome.columns, self._columns.values(), files, strict=False
                ):
                    if values.dtype != dtype:
                        raise VerificationError(f"{file.name}: {values.dtype} added to {dtype}")
                    file.write(values.tobytes())
                size += outcome.columns[0].size if outcome.columns else 0
                if enough is not None and size >= enough:
                    break

    def outcomes(self, number: int) -> Iterator[Outcome]:
        """The outcomes of a finished unit, without their columns."""
        with self.path(number, RECORDS).open("rb") as file:
            for line in file:
                part, held, dropped, entry, amounts, noted = json.loads(line)
                yield Outcome(part, held, dropped, entry, amounts, noted)

    def blocks(self, numbers: Iterable[int], column: str, size: int) -> Iterator[bytes]:
        """The first ``size`` bytes of a column over several units, block by block."""
        for number in numbers:
            with self.path(number, column).open("rb") as file:
                while size and (block := file.read(min(size, WRITE_BUFFER))):
                    size -= len(block)
                    yield block


def _size_and_hash(path: Path) -> list[Any]:
    return [path.stat().st_size, sha256_file(path)]


def _record(outcome: Outcome) -> bytes:
    value = [
        outcome.part, outcome.held, outcome.dropped, outcome.line, outcome.amounts, outcome.noted,
    ]  # fmt: skip
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
