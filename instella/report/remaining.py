"""Time left of a whole run, estimated from what its stages took; no promise.

A waiting stage is taken to need what it took the last time in these results, else its FLOPs
at the median speed of the trainings that are done, else the mean of done stages of its kind.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from instella.artifacts import journal
from instella.audit.journals import read_lines
from instella.errors import VerificationError
from instella.plan.plan import StagePlan
from instella.recipe.graph import Stage
from instella.report.progress import BROKEN, RUNNING, WAITING


@dataclass(frozen=True)
class Remaining:
    """Seconds of the stages that are not done, one after another.

    Attributes:
        seconds: sum over the stages with an estimate; stages that run side by side need less.
        unknown: stages without one, which come on top.
    """

    seconds: float
    unknown: int


def remaining(
    graph: Mapping[str, Stage],
    states: Mapping[str, str],
    results: Path,
    planned: Sequence[StagePlan],
) -> Remaining:
    """The estimate for all stages that wait, run or were broken off.

    A running or broken stage counts whole, so the estimate errs on the long side.
    """
    took = {name: seconds for name in graph if (seconds := _took(results, name)) is not None}
    flops = {item.stage: item.flops / item.runs for item in planned if item.flops}
    work = {
        name: flops.get(name.partition("_seed")[0]) for name, one in graph.items() if one.trains
    }
    speeds = [each / took[name] for name, each in work.items() if each and took.get(name)]
    kinds: dict[str, list[float]] = {}
    for name, seconds in took.items():
        kinds.setdefault(graph[name].kind, []).append(seconds)
    total, unknown = 0.0, 0
    for name in (one for one in graph if states[one] in (WAITING, RUNNING, BROKEN)):
        each = work.get(name)
        if name in took:
            total += took[name]
        elif each and speeds:
            total += each / statistics.median(speeds)
        elif graph[name].kind in kinds:
            total += statistics.fmean(kinds[graph[name].kind])
        else:
            unknown += 1
    return Remaining(total, unknown)


def _took(results: Path, stage: str) -> float | None:
    """Seconds of a stage's last computation; None where the journal tells of none."""
    try:
        lines, _ = read_lines(results / journal.FOLDER / f"{stage}.jsonl")
    except VerificationError:
        return None
    seconds = [float(line["seconds"]) for line in lines if line["outcome"] == "computed"]
    return seconds[-1] if seconds else None
