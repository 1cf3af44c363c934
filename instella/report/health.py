"""Curves of what GRPO logs beside its artifact: notes of one execution, which nobody signs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from instella.artifacts import journal
from instella.artifacts.identity import identity_key
from instella.artifacts.manifest import Manifest
from instella.artifacts.notes import HEALTH
from instella.canonical import read_jsonl
from instella.errors import VerificationError
from instella.report.curves import Curve, Panel, chart_data, curve_of, starts, summaries
from instella.report.files import MAX_BYTES, Row

KINDS = ("policy",)
PANELS = (
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


def health_of(
    results: Path, manifests: Mapping[str, Manifest], curves: Sequence[Curve]
) -> dict[str, Any]:
    """``charts`` and ``summaries`` of the stages that were computed here.

    Args:
        results: folder of the run.
        manifests: of its stages.
        curves: of ``read_curves``, which fix the time line.
    """
    found = []
    for curve in curves:
        if curve.kind in KINDS and curve.stage in manifests:
            key = identity_key(manifests[curve.stage].identity)
            rows = _rows(journal.notes_folder(results, key) / HEALTH)
            if rows:
                found.append(curve_of(curve.stage, curve.kind, curve.side, rows, PANELS))
    begin = starts(curves)
    return {
        "charts": chart_data(found, PANELS, begin),
        "summaries": summaries(found, PANELS),
    }


def _rows(path: Path) -> list[Row]:
    """Lines of a file of notes; none where it is not there or not what the kit writes."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
        return []
    try:
        rows = read_jsonl(path)
    except VerificationError:
        return []
    return rows if all(type(row.get("step")) is int for row in rows) else []
