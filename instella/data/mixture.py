"""The documents of a mixture, spooled to the disk and read back in their order.

The order is that of ``rank``, a keyed hash of seed, part and key: a seeded permutation
that depends neither on the order of files nor on the other documents. The documents are
distributed into 256 buckets by the first two hex digits of their rank; a bucket that is too
large is distributed again by the next digit. Buckets are then handed out as units, short
runs of the order, each sorted in memory. Where the units begin is a matter of speed: one
after another they give the same order for any size of unit.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from instella.canonical import read_json, sha256_file, write_json
from instella.data.documents import (
    Choice,
    Conversation,
    Document,
    Message,
    Preference,
    Problem,
    Text,
)
from instella.data.packing import Drawn, documents_of, split_options
from instella.data.select import Selection
from instella.errors import VerificationError
from instella.recipe.settings import Part

INDEX = "index.json"
RANK_BYTES = 16
LENGTH_BYTES = 8
WRITE_BUFFER = 1 << 15
"""Bytes held back for each of up to 256 open buckets."""

SMALLEST_UNIT, LARGEST_UNIT = 1 << 20, 16 << 20
UNITS = 128
"""A mixture is cut in so many units, or more, as long as their size stays in the bounds."""

TYPES: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Text, Conversation, Preference, Problem, Choice)
}


@dataclass(frozen=True)
class Bucket:
    """A file of documents whose ranks begin alike."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Mixture:
    """A whole spool.

    Attributes:
        folder: where the buckets lie.
        parts: the parts of the mixture.
        math_prompt: default of the parts' option of that name.
        units: the buckets of each unit, in the order of ranks.
        selections: what became of the documents of each part.
    """

    folder: Path
    parts: tuple[Part, ...]
    math_prompt: bool
    units: tuple[tuple[Bucket, ...], ...]
    selections: tuple[Selection, ...]

    @property
    def drawn(self) -> int:
        """Documents of the whole mixture, each repetition counted."""
        return sum(selection.drawn for selection in self.selections)

    def unit(self, number: int) -> Iterator[Drawn]:
        """The documents of a unit in their order.

        Raises:
            VerificationError: a bucket is damaged; the spool is given up, so that the
                next call makes it anew.
        """
        math = [split_options(part, self.math_prompt)[1] for part in self.parts]
        for bucket in self.units[number]:
            path = self.folder / bucket.name
            if not path.is_file() or sha256_file(path) != bucket.sha256:
                (self.folder / INDEX).unlink(missing_ok=True)
                raise VerificationError(
                    f"{path}: the spooled documents are damaged; they are given up, run the "
                    "stage again"
                )
            for record in sorted(_records(path)):
                part, document = _document(record[RANK_BYTES:])
                yield Drawn(part, self.parts[part].source, document, math[part])


def rank(seed: int, part: int, key: str) -> bytes:
    """Place of a document in the order: 16 bytes, compared from the left."""
    text = f"{seed}\0{part}\0{key}"
    return hashlib.blake2b(text.encode("utf-8"), digest_size=RANK_BYTES).digest()


def spool(
    parts: Sequence[Part],
    inputs: Mapping[str, Path],
    seed: int,
    folder: Path,
    math_prompt: bool = False,
    unit_bytes: int | None = None,
) -> Mixture:
    """Select the documents of all parts and lay them down in buckets, or find them there.

    Args:
        parts: the mixture; the numbers of its parts enter the ranks.
        inputs: role ``source_NAME`` to the folder of that source.
        seed: of the order.
        folder: the spool, of this seed and these parts and inputs only.
        math_prompt: default of the parts' option of that name.
        unit_bytes: most bytes of a unit of several documents; by the amount of data if None.

    Raises:
        VerificationError: no part yields a document.
    """
    if not (folder / INDEX).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        selections = [Selection() for _ in parts]
        with _Buckets(folder) as buckets:
            for number, part in enumerate(parts):
                bare, _ = split_options(part, math_prompt)
                for document in documents_of(bare, inputs, selections[number]):
                    place = rank(seed, number, document.key)
                    buckets.add(place.hex()[:2], place + _payload(number, document))
        _write_index(folder, selections, unit_bytes)
    mixture = _read_index(folder, tuple(parts), math_prompt)
    if not mixture.drawn:
        names = ", ".join(part.source for part in parts) or "none"
        raise VerificationError(f"parts ({names}) hold no document; give the mixture some data")
    return mixture


class _Buckets:
    """Files that records are appended to, named by the digits with which ranks begin."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._stack = ExitStack()

    def add(self, name: str, record: bytes) -> None:
        """Append a record to the bucket ``name``."""
        file = self._files.get(name)
        if file is None:
            path = self._folder / name
            file = self._stack.enter_context(path.open("wb", buffering=WRITE_BUFFER))
            self._files[name] = file
        file.write(len(record).to_bytes(LENGTH_BYTES, "little"))
        file.write(record)

    def __enter__(self) -> "_Buckets":
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()


def _records(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while head := file.read(LENGTH_BYTES):
            yield file.read(int.from_bytes(head, "little"))


def _first_length(path: Path) -> int:
    with path.open("rb") as file:
        return int.from_bytes(file.read(LENGTH_BYTES), "little")


def _payload(part: int, document: Document) -> bytes:
    value = [part, type(document).__name__, vars(document)]
    return json.dumps(value, default=vars, ensure_ascii=False, separators=(",", ":")).encode()


def _document(payload: bytes) -> tuple[int, Document]:
    part, kind, fields = json.loads(payload)
    if kind == Conversation.__name__:
        fields["messages"] = tuple(Message(**message) for message in fields["messages"])
    elif kind == Preference.__name__:
        fields["history"] = tuple(Message(**message) for message in fields["history"])
    elif kind == Choice.__name__:
        fields["choices"] = tuple(fields["choices"])
    return part, TYPES[kind](**fields)


def _write_index(folder: Path, selections: list[Selection], unit_bytes: int | None) -> None:
    """Close a spool; it counts from here on."""
    paths = sorted(folder.iterdir())
    total = sum(path.stat().st_size for path in paths)
    if unit_bytes is None:
        unit_bytes = min(LARGEST_UNIT, max(SMALLEST_UNIT, total // UNITS))
    units: list[list[Bucket]] = []
    room = 0
    for path in chain.from_iterable(_small(bucket, unit_bytes) for bucket in paths):
        bucket = Bucket(path.name, path.stat().st_size, sha256_file(path))
        if bucket.size > room:
            units.append([])
            room = unit_bytes
        units[-1].append(bucket)
        room -= bucket.size
    value = {
        "units": [[asdict(bucket) for bucket in unit] for unit in units],
        "selections": [asdict(selection) for selection in selections],
    }
    temporary = folder / f".{INDEX}"
    write_json(temporary, value)
    temporary.rename(folder / INDEX)


def _small(path: Path, limit: int) -> Iterator[Path]:
    """The bucket itself, or the smaller ones it is distributed into, in order."""
    digits, size = len(path.name), path.stat().st_size
    alone = LENGTH_BYTES + _first_length(path) == size
    if size <= limit or alone or digits == 2 * RANK_BYTES:
        yield path
        return
    with _Buckets(path.parent) as buckets:
        for record in _records(path):
            buckets.add(record[:RANK_BYTES].hex()[: digits + 1], record)
    path.unlink()
    for digit in "0123456789abcdef":
        part = path.with_name(f"{path.name}{digit}")
        if part.is_file():
            yield from _small(part, limit)


def _read_index(folder: Path, parts: tuple[Part, ...], math_prompt: bool) -> Mixture:
    value = read_json(folder / INDEX)
    units = tuple(tuple(Bucket(**bucket) for bucket in unit) for unit in value["units"])
    selections = tuple(Selection(**selection) for selection in value["selections"])
    return Mixture(folder, parts, math_prompt, units, selections)
