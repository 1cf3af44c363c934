"""Curves of all training stages on one time line, whose unit is a step.

Stages follow each other in the order of the run; the seeds of one stage run side by side, and
so do the two runs of a comparison. Every figure is a line of the stage's ``steps.jsonl``.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instella.report.files import STEPS, Files, Row

MOST_POINTS = 1500
DIGITS = 6
_SEED = re.compile(r"(.+)_seed[0-9]+")
TEXT_KINDS = ("pretrain", "finetune")


@dataclass(frozen=True)
class Panel:
    """One chart: a figure of the stages of some kinds, all kinds if none is named."""

    title: str
    figure: str
    about: str
    kinds: tuple[str, ...] = ()


PANELS = (
    Panel("Loss of next tokens", "loss", "nats a label, lower is better", TEXT_KINDS),
    Panel("Learning rate", "learning_rate", "of each update"),
    Panel("Gradient norm", "grad_norm", "total norm before clipping"),
    Panel("Preference loss", "loss", "DPO, lower is better", ("preference",)),
    Panel("Preference accuracy", "accuracy", "share of pairs ranked right", ("preference",)),
    Panel("Preference margin", "margin", "chosen minus rejected reward", ("preference",)),
    Panel("Reward", "reward", "share of answers that are right", ("policy",)),
    Panel("Response length", "response_tokens", "tokens, mean of a step", ("policy",)),
    Panel("KL", "kl_loss", "to the starting network, a token mean", ("policy",)),
    Panel("Policy loss", "loss", "GRPO, its level says little", ("policy",)),
    Panel("Groups without signal", "no_signal", "share whose answers earn the same", ("policy",)),
    Panel("Answers cut off", "unfinished", "share at the length limit", ("policy",)),
    Panel("Clip fraction", "clip_fraction", "share of tokens whose ratio is cut", ("policy",)),
)


@dataclass(frozen=True)
class Curve:
    """What one training stage of one run tells.

    Attributes:
        stage, kind: of the manifest; the mean of seeds has the stage's name without a seed.
        side: empty, or ``A`` and ``B`` where two runs are compared.
        steps: numbers of the points, from 1; every ``every``-th step where there are many.
        figures: name to one value a point.
        total: steps of the stage.
        seeds: how many seeds it is the mean of; 0 for a single training.
    """

    stage: str
    kind: str
    side: str
    steps: tuple[int, ...]
    figures: Mapping[str, tuple[float, ...]]
    total: int
    every: int = 1
    seeds: int = 0


def base_of(stage: str) -> str:
    """A stage's name without its seed: seeds of one base share their place on the time line."""
    found = _SEED.fullmatch(stage)
    return found[1] if found else stage


def read_curves(files: Files, side: str = "") -> list[Curve]:
    """Curves of all stages of a run that have steps, seeds followed by their mean."""
    curves: list[Curve] = []
    for name, manifest in files.manifests.items():
        rows = files.rows(name, STEPS)
        if not rows:
            continue
        if not all(type(row.get("step")) is int for row in rows):
            files.faults.append(f"{name}: {STEPS}: a line without a step, so it is not shown")
            continue
        curves.append(curve_of(name, manifest.kind, side, rows))
    return _with_means(curves)


def curve_of(
    name: str, kind: str, side: str, rows: Sequence[Row], panels: Sequence[Panel] = PANELS
) -> Curve:
    """The curve of a stage's lines, each with its step, as far as the panels show it."""
    every = -(-len(rows) // MOST_POINTS)
    kept = [row for number, row in enumerate(rows, 1) if number % every == 0 or number == len(rows)]
    named = sorted({panel.figure for panel in panels})
    figures = {
        figure: tuple(float(row[figure]) for row in kept)
        for figure in named
        if all(type(row.get(figure)) in (int, float) for row in kept)
    }
    return Curve(name, kind, side, tuple(row["step"] for row in kept), figures, len(rows), every)


def _with_means(curves: Sequence[Curve]) -> list[Curve]:
    """Behind the last seed of a stage the mean of all, where they have the same steps."""
    found: list[Curve] = []
    for curve in curves:
        found.append(curve)
        base = base_of(curve.stage)
        seeds = [item for item in curves if item.stage != base and base_of(item.stage) == base]
        if len(seeds) < 2 or curve is not seeds[-1] or len({item.steps for item in seeds}) > 1:
            continue
        figures = {
            figure: tuple(
                math.fsum(values) / len(seeds)
                for values in zip(*(item.figures[figure] for item in seeds), strict=True)
            )
            for figure in curve.figures
            if all(figure in item.figures for item in seeds)
        }
        found.append(
            Curve(base, curve.kind, curve.side, curve.steps, figures, curve.total, curve.every,
                  len(seeds))
        )  # fmt: skip
    return found


def starts(curves: Sequence[Curve]) -> dict[str, int]:
    """Base of each stage to the steps before it on the time line."""
    lengths: dict[str, int] = {}
    for curve in curves:
        base = base_of(curve.stage)
        lengths[base] = max(lengths.get(base, 0), curve.total)
    found, before = {}, 0
    for base, length in lengths.items():
        found[base] = before
        before += length
    return found


def chart_data(
    curves: Sequence[Curve],
    panels: Sequence[Panel] = PANELS,
    begin: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Plain values that the page draws: curves, panels that have any, and the time line.

    Args:
        curves: what is drawn.
        panels: where.
        begin: as ``starts`` of all curves on the time line, where these are only some of them.
    """
    begin = starts(curves) if begin is None else begin
    order = list(begin)
    last = {
        base: start + max(item.total for item in curves if base_of(item.stage) == base)
        for base, start in begin.items()
        if any(base_of(item.stage) == base for item in curves)
    }
    return {
        "curves": [
            {
                "stage": curve.stage,
                "side": curve.side,
                "seeds": curve.seeds,
                "color": order.index(base_of(curve.stage)),
                "start": begin[base_of(curve.stage)],
                "steps": list(curve.steps),
                "figures": {
                    name: [_rounded(value) for value in values]
                    for name, values in sorted(curve.figures.items())
                },
            }
            for curve in curves
        ],
        "panels": [
            {"figure": panel.figure, "curves": chosen}
            for panel, chosen in _panels(curves, panels)
        ],
        "line": [{"stage": base, "from": begin[base], "to": to} for base, to in last.items()],
    }  # fmt: skip


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _panels(curves: Sequence[Curve], panels: Sequence[Panel]) -> Iterator[tuple[Panel, list[int]]]:
    for panel in panels:
        chosen = [
            number
            for number, curve in enumerate(curves)
            if (not panel.kinds or curve.kind in panel.kinds) and panel.figure in curve.figures
        ]
        if chosen:
            yield panel, chosen


def summaries(curves: Sequence[Curve], panels: Sequence[Panel] = PANELS) -> list[dict[str, Any]]:
    """Each panel with a row for each curve: what the chart shows, in words and numbers."""
    found = []
    for panel, chosen in _panels(curves, panels):
        rows = [_summary(curves[number], panel.figure) for number in chosen]
        found.append({"title": panel.title, "about": panel.about, "rows": rows})
    return found


def _summary(curve: Curve, figure: str) -> dict[str, Any]:
    values = curve.figures[figure]
    name = f"{curve.stage}, mean of {curve.seeds} seeds" if curve.seeds else curve.stage
    return {
        "name": f"{curve.side}: {name}" if curve.side else name,
        "steps": curve.total,
        "every": curve.every,
        "first": _rounded(values[0]),
        "lowest": _rounded(min(values)),
        "highest": _rounded(max(values)),
        "last": _rounded(values[-1]),
    }
