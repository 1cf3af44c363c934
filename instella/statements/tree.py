"""The tree over all files of a run, and the trees over the lines of some of them.

A leaf is the canonical JSON of one file: stage, path, SHA-256, size and, for a file whose lines can
be proved, the root and the number of its lines. Leaves are in the order of stage and path.
Lines can be proved of step ledgers, of the records and scores of evaluations; of
``scores.json``, which is one line, a "line" is one figure of one set.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from instella.artifacts.manifest import LEDGER_SUFFIX, Entry, Manifest
from instella.artifacts.store import Store
from instella.canonical import json_bytes, parse_json
from instella.errors import VerificationError
from instella.merkle import tree_root
from instella.statements.predicates import SCORES

MAX_WHOLE_BYTES = 64 << 20
_SCORED = ("evaluate", "baseline")


@dataclass(frozen=True)
class Leaf:
    """One file of a run; ``lines`` is None where they cannot be proved.

    Attributes:
        stage, path: where it stands.
        entry: its bytes.
        lines: root over its lines (64 hex digits) and their number.
    """

    stage: str
    path: str
    entry: Entry
    lines: tuple[str, int] | None

    def plain(self) -> dict[str, Any]:
        """As a plain object."""
        lines = None if self.lines is None else {"root": self.lines[0], "count": self.lines[1]}
        return {
            "stage": self.stage,
            "path": self.path,
            "sha256": self.entry.sha256,
            "size": self.entry.size,
            "lines": lines,
        }


def has_lines(manifest: Manifest, path: str) -> bool:
    """Whether single lines of a file can be proved."""
    if path.endswith(LEDGER_SUFFIX):
        return True
    return manifest.kind in _SCORED and (path.endswith(".jsonl") or path == SCORES)


def leaves(manifests: Mapping[str, Manifest], store: Store) -> list[Leaf]:
    """The leaves of a run, in order; reads the files whose lines can be proved, and no other.

    Raises:
        VerificationError: such a file is not what its manifest says.
    """
    found = []
    for stage in sorted(manifests):
        manifest = manifests[stage]
        for path, entry in sorted(manifest.files.items()):
            lines = None
            if has_lines(manifest, path):
                counted = _Counted(lines_of(store, path, entry))
                lines = (tree_root(counted).hex(), counted.count)
            found.append(Leaf(stage, path, entry, lines))
    return found


class _Counted:
    """Passes lines on and counts them."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.count += 1
            yield line


def tree_of(found: list[Leaf]) -> dict[str, Any]:
    """Root and number of leaves, as they stand in a run's statement."""
    return {"root": tree_root(leaf_bytes(found)).hex(), "count": len(found)}


def leaf_bytes(found: list[Leaf]) -> list[bytes]:
    """What is hashed for each leaf."""
    return [json_bytes(leaf.plain()) for leaf in found]


def lines_of(store: Store, path: str, entry: Entry) -> Iterator[bytes]:
    """The lines of a file that can be proved, each with its line feed.

    Raises:
        VerificationError: after the last line, if the bytes are not those of the entry.
    """
    if path == SCORES:
        yield from _figures(read_whole(store, entry, path), path)
        return
    digest = hashlib.sha256()
    with store.object_path(entry.sha256).open("rb") as file:
        for line in file:
            digest.update(line)
            yield line
    if digest.hexdigest() != entry.sha256:
        raise VerificationError(f"{store.object_path(entry.sha256)}: {path}: other bytes; {_CURE}")


def read_whole(store: Store, entry: Entry, path: str) -> bytes:
    """The bytes of a small file, verified.

    Raises:
        VerificationError: it is large, missing, or not what the entry says.
    """
    place = store.object_path(entry.sha256)
    if entry.size > MAX_WHOLE_BYTES or not place.is_file():
        raise VerificationError(f"{place}: {path}: missing, or too large to be read; {_CURE}")
    data = place.read_bytes()
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise VerificationError(f"{place}: {path}: other bytes; {_CURE}")
    return data


def _figures(data: bytes, path: str) -> Iterator[bytes]:
    """``scores.json`` as one line for each figure, in the order of set and metric."""
    value = parse_json(data, path)
    try:
        for held_out, metrics in sorted(value.items()):
            for metric, figure in sorted(metrics.items()):
                yield json_bytes({**figure, "set": held_out, "metric": metric})
    except (AttributeError, TypeError) as error:
        raise VerificationError(f"{path}: not the scores of an evaluation: {error}") from None


_CURE = "instella audit names what is damaged"
