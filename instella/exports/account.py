"""Compute and energy of a checkpoint: what was measured, and what a formula gives."""

from collections.abc import Mapping
from dataclasses import dataclass

from instella.exports.finished import Finished
from instella.plan.plan import Assumptions, StagePlan, plan
from instella.recipe.graph import Stage
from instella.recipe.imports import ancestors

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Spent:
    """What one training stage took, all its seeds together.

    Attributes:
        stage: as the recipe names it.
        planned: by formula; see ``instella.plan``.
        seconds: wall time measured by the journal; None where not every run was computed here.
    """

    stage: str
    planned: StagePlan
    seconds: float | None


def spent(run: Finished, name: str) -> list[Spent]:
    """The training stages that a checkpoint comes from, in order."""
    before = ancestors(run.graph, name) | {name}
    found = []
    for item in plan(run.recipe, _rows(run), Assumptions()):
        stages = [s for s in run.graph if s in before and _is_run_of(run.graph[s], item.stage)]
        if not stages:
            continue
        times = [run.executions[s] for s in stages if s in run.executions]
        is_known = len(times) == len(stages) and all(time.computed for time in times)
        found.append(Spent(item.stage, item, sum(t.seconds for t in times) if is_known else None))
    return found


def _is_run_of(stage: Stage, planned: str) -> bool:
    is_seed = stage.name.startswith(f"{planned}_seed")
    return stage.trains and not stage.is_imported and (stage.name == planned or is_seed)


def other_seconds(run: Finished, name: str) -> float:
    """Measured wall time of everything else that the checkpoint comes from: data, tokens."""
    before = ancestors(run.graph, name)
    return sum(
        time.seconds
        for stage, time in run.executions.items()
        if stage in before and not run.graph[stage].trains and time.computed
    )


def _rows(run: Finished) -> dict[str, float]:
    """Rows, pairs or prompts of each training stage's data, from the reports."""
    rows: dict[str, float] = {}
    for stage in run.recipe.stages.__dataclass_fields__:
        manifest = run.manifests.get(f"tokens_{stage}")
        if manifest is None or "report.json" not in manifest.files:
            continue
        counts: Mapping[str, float] = run.json(f"tokens_{stage}", "report.json")
        found = [counts[word] for word in ("rows", "pairs", "prompts") if word in counts]
        rows.update({stage: found[0]} if found else {})
    return rows


def energy_kwh(seconds: float, watts: float) -> float:
    """Energy in kWh of a machine that draws ``watts`` for so many seconds."""
    return seconds * watts / JOULES_PER_KWH
