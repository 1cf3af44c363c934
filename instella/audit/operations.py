"""The first operation of a step that makes different numbers of the same ones.

A step is run again in two configurations of this machine, from the same recorded inputs, and
every operation's tensors are digested. Up to the first that differs both runs read the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from instella.audit.child import start
from instella.audit.replay import Replay, made
from instella.audit.tracing import read_trace
from instella.audit.ulp import EXPONENTS, compare_elements
from instella.progress import Reporter
from instella.step_files import LEDGER

_KINDS = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True)
class Operation:
    """The first operation that differs.

    Attributes:
        number: from 1, of the operations of the step.
        names: in both configurations; None where a list ended.
        shapes: dtype and shape of each tensor read in the first.
        numeric: both are the same operation, read equal numbers and made unequal ones;
            otherwise the configurations do different things from here on.
        extent: how many elements differ, with distances, if that was measured.
    """

    number: int
    names: tuple[str | None, str | None]
    shapes: tuple[str, ...]
    numeric: bool
    extent: str = ""

    def __str__(self) -> str:
        if not self.numeric:
            one, other = (name or "nothing" for name in self.names)
            return f"operation {self.number}: {one} | {other}: different code runs from here on"
        tail = f": {self.extent}" if self.extent else ""
        read = f" of {' and '.join(self.shapes)}" if self.shapes else ""
        return (
            f"operation {self.number} of the step, {self.names[0]}{read}: equal inputs, unequal "
            f"outputs{tail}"
        )


@dataclass(frozen=True)
class Traced:
    """One replay with its trace: the ledger's line of the step, and where operations lie."""

    replay: Replay
    line: bytes


def trace(replay: Replay, report: Reporter) -> Traced:
    """Run a replay with a trace.

    Raises:
        KitError: it failed.
    """
    traced = replace(replay, trace=True)
    start("instella.audit.replay", [], traced.write(), report)
    lines = (made(traced) / LEDGER).read_bytes().splitlines(keepends=True)
    return Traced(traced, lines[traced.until - 1])


def first_operation(left: Traced, right: Traced, report: Reporter) -> Operation | None:
    """The first differing operation of two traces; None if all are equal.

    Both replays run once more, to keep the numbers of that operation.
    """
    found = _first(left.replay.trace_file, right.replay.trace_file)
    if found is None or not found.numeric:
        return found
    sides = []
    for side, name in ((left, "left"), (right, "right")):
        folder = side.replay.folder / f"dump-{name}"
        again = replace(side.replay, folder=folder, dump=found.number - 1)
        trace(again, report)
        sides.append(folder)
    return replace(found, extent=_extent(sides[0], sides[1], found, left.replay.trace_file))


def _first(left: Path, right: Path) -> Operation | None:
    for number, (one, other) in enumerate(zip_longest(read_trace(left), read_trace(right)), 1):
        if one == other:
            continue
        names = tuple(line["op"] if line else None for line in (one, other))
        same = bool(one and other) and all(one[k] == other[k] for k in ("op", "read", "numbers"))
        shapes = tuple(f"{kind} {shape}" for kind, shape, _ in one["read"]) if one else ()
        if same or names[0] != names[1]:
            return Operation(number, (names[0], names[1]), shapes, same)
    return None


def _extent(left: Path, right: Path, found: Operation, trace_file: Path) -> str:
    """Elements of the first tensor made that differ."""
    line: Mapping[str, Any] = next(
        line for number, line in enumerate(read_trace(trace_file), 1) if number == found.number
    )
    for number, (kind, _, _) in enumerate(line["made"]):
        arrays = [
            np.load(side / f"made-{number}.npy", allow_pickle=False) for side in (left, right)
        ]
        pairs = partial(iter, [(arrays[0], arrays[1])])
        elements = compare_elements(pairs, _KINDS.get(kind, "U"))
        if elements is not None:
            unit = "ULP" if _KINDS.get(kind) in EXPONENTS else "difference"
            return (
                f"{elements.differing} of {elements.count} elements differ, {unit} max "
                f"{elements.largest}, median {elements.median}"
            )
    return ""
