"""Which parts of a run an audit computes again, and what a sample of them proves.

The units are the stages that do not train, whole, and the segments of those that do: from
one line of the step ledger with digests of every tensor to the next. A sample is drawn
without replacement, so the chance that none of its ``n`` out of ``N`` units is among ``c``
false ones is hypergeometric, C(N - c, n) / C(N, n). (Ateniese et al., "Provable Data
Possession at Untrusted Stores", CCS 2007, section 4, uses the same count for blocks of a
file: 300 of 10000 find 100 false ones with 95 %, 460 with 99 %.)
"""

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from instella.artifacts.manifest import Manifest, ledger_paths
from instella.audit.steps import StepLedger
from instella.recipe.graph import Stage

SHARES = (0.01, 0.05, 0.1, 0.5)


@dataclass(frozen=True, order=True)
class Unit:
    """A part of a run that can be computed again from what is recorded.

    Attributes:
        stage: name.
        start, end: steps done before and after; both None for a whole stage. A segment
            that ends with the stage's last step is checked by its files too.
    """

    stage: str
    start: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        return self.stage if self.end is None else f"{self.stage} steps {self.start} to {self.end}"


def units(
    graph: Mapping[str, Stage],
    manifests: Mapping[str, Manifest],
    ledgers: Mapping[str, StepLedger],
) -> list[Unit]:
    """All units of a run, in the graph's order; stages without a result or imported have none."""
    found = []
    for name, stage in graph.items():
        if name not in manifests or stage.is_imported:
            continue
        if ledger_paths(manifests[name].files) and name in ledgers:
            ends = ledgers[name].digested
            found += [Unit(name, a, b) for a, b in zip((0, *ends), ends, strict=False)]
        else:
            found.append(Unit(name))
    return found


def draw(population: list[Unit], count: int, seed: int) -> list[Unit]:
    """A sample without replacement, in the population's order; all if there are no more."""
    chosen = set(random.Random(seed).sample(population, min(count, len(population))))
    return [unit for unit in population if unit in chosen]


def caught(total: int, false: int, sampled: int) -> float:
    """Probability that a sample holds at least one false unit.

    Args:
        total, false: units of the run, and those that are not what their inputs give.
        sampled: units that were computed again, drawn without replacement.
    """
    if false <= 0 or sampled <= 0:
        return 0.0
    return 1.0 - math.comb(total - false, sampled) / math.comb(total, sampled)


def needed(total: int, false: int, probability: float) -> int:
    """The smallest sample that holds a false unit with at least this probability."""
    low, high = 1, max(1, total - false + 1)
    while low < high:
        middle = (low + high) // 2
        if caught(total, false, middle) >= probability:
            high = middle
        else:
            low = middle + 1
    return low


@dataclass(frozen=True)
class Cheat:
    """How likely a cheat of a size is caught: false units, their share, the probability."""

    units: int
    share: float
    probability: float


def cheats(total: int, sampled: int) -> list[Cheat]:
    """Probabilities for one false unit and for shares of all units."""
    if not total:
        return []
    counts = sorted({1, *(math.ceil(share * total) for share in SHARES)})
    return [Cheat(count, count / total, caught(total, count, sampled)) for count in counts]


@dataclass(frozen=True)
class Coverage:
    """How much of a run was computed again.

    Attributes:
        units: of the run, and computed again with equal bytes or not.
        stages: computed stages, and those of which a part or all was done.
        steps: training steps of the run, and those done; a segment replayed from the
            stage's start covers all steps before it too.
        seconds: what the journals say the stages took, and the share of it done: a stage's
            seconds count by its steps.
    """

    units: tuple[int, int]
    stages: tuple[int, int]
    steps: tuple[int, int]
    seconds: tuple[float, float]


def coverage(
    population: list[Unit],
    done: Iterable[Unit],
    steps: Mapping[str, int],
    first: Mapping[Unit, int],
    seconds: Mapping[str, float],
) -> Coverage:
    """Counts what was done.

    Args:
        population: all units.
        done: those computed again.
        steps: training steps of each stage that trains.
        first: for each segment done, the steps done before its replay began.
        seconds: of each stage, from its journal.
    """
    done = list(done)
    covered: dict[str, set[int]] = {}
    for unit in done:
        span = {0} if unit.end is None else set(range(first[unit], unit.end))
        covered.setdefault(unit.stage, set()).update(span)
    names = {unit.stage for unit in population}
    spent = sum(
        seconds.get(name, 0.0) * len(covered[name]) / steps.get(name, 1) for name in covered
    )
    return Coverage(
        units=(len(population), len(done)),
        stages=(len(names), len(covered)),
        steps=(sum(steps.values()), sum(len(covered[name]) for name in covered if name in steps)),
        seconds=(sum(seconds.get(name, 0.0) for name in names), spent),
    )
