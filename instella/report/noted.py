"""Curves of what training logs beside its artifact: notes of one execution, which nobody signs.

Time and memory of every training, and how healthy GRPO was. The model FLOPs utilization is
calculated here, of pretraining only: its rows are full, those of other stages are cut behind
their last label.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from instella.artifacts import journal
from instella.artifacts.identity import identity_key
from instella.artifacts.manifest import Manifest
from instella.artifacts.notes import HEALTH, SPEED
from instella.canonical import read_jsonl
from instella.errors import VerificationError
from instella.plan.flops import training_flops
from instella.recipe.settings import Pretrain, Recipe
from instella.report.curves import Curve, Panel, base_of, chart_data, curve_of, starts, summaries
from instella.report.files import MAX_BYTES, Row

KINDS = ("policy",)
RATE, UTILIZATION = "tokens_per_second", "mfu"
PANELS = (
    Panel("Tokens a second", RATE, "of all ranks, each step with its checkpoint"),
    Panel("Model FLOPs utilization", UTILIZATION, "share of the accelerators' peak", ("pretrain",)),
    Panel("Peak memory", "peak_memory_bytes", "bytes of the first rank, up to the step"),
    Panel("Reward spread", "reward_spread", "standard deviation over a step's answers", KINDS),
    Panel("Entropy", "entropy", "nats, mean over the answers' tokens", KINDS),
    Panel(
        "Trainer against rollout",
        "rollout_difference",
        "mean absolute difference of a token's log-probability",
        KINDS,
    ),
    Panel("Largest such difference", "rollout_difference_max", "of any token of a step", KINDS),
    Panel("Grader time-outs", "timed_out", "verdicts that needed the clock", KINDS),
)


def noted_of(
    results: Path, manifests: Mapping[str, Manifest], curves: Sequence[Curve], recipe: Recipe
) -> dict[str, Any]:
    """``charts`` and ``summaries`` of the stages that were computed here.

    Args:
        results: folder of the run.
        manifests: of its stages.
        curves: of ``read_curves``, which fix the time line.
        recipe: of the run; its hardware is what utilization is measured by.
    """
    found = []
    for curve in curves:
        if curve.stage not in manifests:
            continue
        key = identity_key(manifests[curve.stage].identity)
        rows = noted_rows(journal.notes_folder(results, key), recipe, curve.stage)
        if rows:
            found.append(curve_of(curve.stage, curve.kind, curve.side, rows, PANELS))
    begin = starts(curves)
    return {
        "charts": chart_data(found, PANELS, begin),
        "summaries": summaries(found, PANELS),
    }


def noted_rows(folder: Path, recipe: Recipe, stage: str) -> list[Row]:
    """What the notes of one execution say of each step, in order.

    Args:
        folder: with the notes.
        recipe: of the run.
        stage: a training stage, with its seed where it has one.
    """
    steps: dict[int, Row] = {}
    for row in _rows(folder / SPEED):
        steps[row["step"]] = {**row, **_utilization(row, recipe, base_of(stage))}
    for row in _rows(folder / HEALTH):
        steps[row["step"]] = {**steps.get(row["step"], {}), **row}
    return [steps[step] for step in sorted(steps)]


def _utilization(row: Row, recipe: Recipe, stage: str) -> dict[str, float]:
    settings = getattr(recipe.stages, stage, None)
    rate, ranks = row.get(RATE), row.get("ranks")
    if recipe.hardware is None or not isinstance(settings, Pretrain):
        return {}
    if not isinstance(rate, float) or type(ranks) is not int or ranks < 1:
        return {}
    flops = training_flops(recipe.model, settings.data.sequence_length)
    return {UTILIZATION: rate * flops / (ranks * recipe.hardware.peak_flops)}


def _rows(path: Path) -> list[Row]:
    """Lines of a file of notes; none where it is not there or not what the kit writes."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
        return []
    try:
        rows = read_jsonl(path)
    except VerificationError:
        return []
    return rows if all(type(row.get("step")) is int for row in rows) else []
