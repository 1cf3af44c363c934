"""Step ledgers as an auditor reads them, and the first step in which two of them part.

The first differing line is found by halving. "Line i differs" is no predicate to halve by:
a cursor or a rate may differ in one step and be equal in the next, and only weights that
differ usually go on doing so. "The lines before i are the same" is one: once false it stays
false. So ranges are compared by their Merkle roots (``instella.merkle``), which is exact, and
two parties who hold one ledger each find the step by exchanging about log2(n) roots.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.canonical import parse_json
from instella.errors import VerificationError
from instella.merkle import leaf_hash, tree_root

# In the order in which a step makes them: the first that differs is nearest to the cause.
FIELDS = ("cursor", "rng", "rollout", "rewards", "loss", "rate")
TENSORS = "tensors"
MAX_LINE_BYTES = 64 << 20

Line = dict[str, Any]


@dataclass(frozen=True)
class StepLedger:
    """A ledger on disk; one hash and one offset a line in memory.

    Attributes:
        path: the file.
        leaves: hash of each line.
        offsets: where each line begins, and the end of the last.
        digested: steps whose line has digests of every tensor, ascending.
    """

    path: Path
    leaves: tuple[bytes, ...]
    offsets: tuple[int, ...]
    digested: tuple[int, ...]

    @property
    def steps(self) -> int:
        """Number of lines, one a step."""
        return len(self.leaves)

    def raw(self, step: int) -> bytes:
        """The line of a step, counted from 1, with its line feed."""
        start, end = self.offsets[step - 1], self.offsets[step]
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    def line(self, step: int) -> Line:
        """The line of a step, parsed and checked."""
        return _checked(self.raw(step), self.path, step)

    def prefix(self, step: int) -> bytes:
        """The lines up to a step, that one included."""
        with self.path.open("rb") as file:
            return file.read(self.offsets[step])


def read_ledger(path: Path) -> StepLedger:
    """Read an untrusted ledger.

    Raises:
        VerificationError: a line is not what a ledger holds, with its number.
    """
    leaves: list[bytes] = []
    offsets, digested = [0], []
    with path.open("rb") as file:
        while data := file.readline(MAX_LINE_BYTES + 1):
            step = len(leaves) + 1
            if len(data) > MAX_LINE_BYTES:
                raise VerificationError(f"{path}, line {step}: longer than {MAX_LINE_BYTES} bytes")
            if TENSORS in _checked(data, path, step):
                digested.append(step)
            leaves.append(leaf_hash(data))
            offsets.append(offsets[-1] + len(data))
    if not leaves or digested[-1:] != [len(leaves)]:
        raise VerificationError(f"{path}: its last line has no digests of tensors, or it is empty")
    return StepLedger(path, tuple(leaves), tuple(offsets), tuple(digested))


def _checked(data: bytes, path: Path, step: int) -> Line:
    value = parse_json(data, f"{path}, line {step}")
    if not isinstance(value, dict) or value.get("step") != step:
        raise VerificationError(f"{path}, line {step}: not the line of step {step}")
    for name, digest in value.items():
        if name in ("step", TENSORS):
            continue
        if name not in FIELDS or not isinstance(digest, str):
            raise VerificationError(f"{path}, line {step}: {name[:40]!r} is no field of a ledger")
    tensors = value.get(TENSORS, {"names": {}})
    names = tensors.get("names") if isinstance(tensors, dict) else None
    if not isinstance(names, dict) or not all(isinstance(item, str) for item in names.values()):
        raise VerificationError(f"{path}, line {step}: tensors holds no digests by name")
    return value


def first_difference(left: StepLedger, right: StepLedger) -> int | None:
    """The first step, from 1, whose lines differ or that one ledger lacks; None if equal."""
    return first_different_leaf(left.leaves, right.leaves)


def first_different_leaf(left: Sequence[bytes], right: Sequence[bytes]) -> int | None:
    """Number, from 1, of the first leaf that differs or that one side lacks."""

    def same(start: int, end: int) -> bool:
        return tree_root(left[start:end]) == tree_root(right[start:end])

    low, high = 0, min(len(left), len(right))
    if same(low, high):
        return None if len(left) == len(right) else high + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if same(low, middle) else (low, middle)
    return low + 1


@dataclass(frozen=True)
class StepDifference:
    """What differs in the first differing step.

    Attributes:
        step: from 1.
        missing: ``A`` or ``B`` when that ledger ends before the step.
        fields: those that differ, in the order in which a step makes them.
        equal: those that are equal.
        digested: the first step from ``step`` on whose lines have digests of tensors.
        tensors: names of the tensors that differ there.
        total: tensors there.
    """

    step: int
    missing: str | None
    fields: tuple[str, ...] = ()
    equal: tuple[str, ...] = ()
    digested: int | None = None
    tensors: tuple[str, ...] = ()
    total: int = 0


def step_difference(left: StepLedger, right: StepLedger) -> StepDifference | None:
    """The first difference of two ledgers; None if they are equal."""
    step = first_difference(left, right)
    if step is None:
        return None
    if step > min(left.steps, right.steps):
        return StepDifference(step, "A" if left.steps < step else "B")
    one, other = left.line(step), right.line(step)
    names = [name for name in FIELDS if name in one or name in other]
    fields = tuple(name for name in names if one.get(name) != other.get(name))
    equal = tuple(name for name in names if name not in fields)
    common = set(left.digested) & set(right.digested)
    digested = min((item for item in common if item >= step), default=None)
    if digested is None:
        return StepDifference(step, None, fields, equal)
    sides = [ledger.line(digested)[TENSORS]["names"] for ledger in (left, right)]
    every = list(dict.fromkeys((*sides[0], *sides[1])))
    differing = tuple(name for name in every if sides[0].get(name) != sides[1].get(name))
    return StepDifference(step, None, fields, equal, digested, differing, len(every))
