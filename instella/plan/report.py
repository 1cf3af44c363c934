"""The plan as text."""

from collections.abc import Mapping, Sequence

from instella.plan.plan import Assumptions, StagePlan, trained_runs
from instella.recipe.settings import Recipe

SOURCES = (
    "operations: 2 N + 4 L h T a token forward, three times that in training; N without the "
    "input embedding; a third of PaLM's 6 N + 12 L H Q T (arXiv 2204.02311, appendix B)",
    "DPO adds a forward pass of the reference; GRPO one of the policy, one of the reference, and "
    "sampling",
    "states: 16 bytes a weight, sharded in a node (ZeRO, arXiv 1910.02054, 3.1); 4 more gathered",
    "activations: 14 h + 4 i values a token and layer, or h with checkpointing (in the manner of "
    "Korthikanti et al., arXiv 2205.05198, 4.1); 10 bytes a logit, at most 2^25 logits at once",
    "checkpoints: 2 bytes a weight released, 12 resumable; data: 2 bytes a token, 1 a label",
)

# Printed figure -> the stage and what of it the figure says.
PRINTED = {
    "stage1_tokens_printed": ("pretrain_stage1", "tokens"),
    "stage2_tokens_printed": ("pretrain_stage2", "tokens"),
    "sft_tokens_printed": ("sft", "tokens of an epoch"),
    "dpo_tokens_printed": ("dpo", "tokens"),
    "stage2_step_of_the_merge": ("pretrain_stage2", "steps"),
    "release_bytes_printed": ("dpo", "released bytes"),
}

HEAD = (
    "stage", "runs", "steps", "tokens", "FLOPs", "GPUs", "GPU-hours", "wall", "energy",
    "data", "resumable", "written", "GPU memory", "(other)",
)  # fmt: skip


LEGEND = {
    "runs": "trainings of the stage, one a seed",
    "steps": "updates of one run; for GRPO rollouts, each with its own updates",
    "tokens": "positions trained on in all runs, padding included",
    "FLOPs": "floating-point operations of all runs, sampling included",
    "GPUs": "accelerators of one run, from the recipe's hardware",
    "GPU-hours": "of all runs: operations over peak times MFU, and sampled tokens over their rate",
    "wall": "time of all runs, one after another",
    "energy": "power of one GPU times GPU-hours times PUE",
    "data": "token arrays and label masks on the disk",
    "resumable": "one checkpoint that training can go on from: weights and two moments",
    "written": "such checkpoints of one run; the newest two stay",
    "GPU memory": "of one GPU while it trains, with the recipe's activation checkpointing",
    "(other)": "the same with the other choice of activation checkpointing",
    "MFU": "share of the accelerators' peak that the network's own operations reach",
    "PUE": "energy of the building over that of the accelerators",
    "-": "not known before the data is tokenized, or not without hardware in the recipe",
}


def text(recipe: Recipe, stages: Sequence[StagePlan], assumptions: Assumptions) -> list[str]:
    """Lines of the table, its totals and what they rest on."""
    rows = [HEAD, *(_cells(stage) for stage in stages), _total(stages)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return [*lines, "", *legend(), "", *_notes(recipe, stages, assumptions)]


def legend() -> list[str]:
    """One line a term of the table and of the notes."""
    width = max(map(len, LEGEND))
    return [f"{term:{width}}  {meaning}" for term, meaning in LEGEND.items()]


def comparisons(
    recipe: Recipe, stages: Sequence[StagePlan], printed: Mapping[str, float]
) -> list[tuple[str, str, float, float]]:
    """(stage, what, planned, published) for each printed figure that the plan has too."""
    by_name = {stage.stage: stage for stage in stages}
    found = []
    for figure, (name, what) in PRINTED.items():
        if name not in by_name:
            continue
        planned = _planned(recipe, by_name[name], what)
        if figure in printed and planned is not None:
            found.append((name, what, planned, printed[figure]))
    return found


def _planned(recipe: Recipe, stage: StagePlan, what: str) -> float | None:
    if what == "released bytes":
        return stage.released_bytes
    if what == "steps" or stage.tokens is None:
        return stage.steps
    epochs = getattr(recipe.stages, stage.stage).training.epochs
    return stage.tokens / epochs if what == "tokens of an epoch" else stage.tokens


def _cells(stage: StagePlan) -> tuple[str, ...]:
    tokens = None if stage.tokens is None else stage.tokens * stage.runs
    return (
        stage.stage,
        str(stage.runs),
        "-" if stage.steps is None else f"{stage.steps:,}",
        scaled(tokens),
        "-" if stage.flops is None else f"{stage.flops:.3g}",
        "-" if stage.accelerators is None else str(stage.accelerators),
        "-" if stage.gpu_hours is None else f"{stage.gpu_hours:,.0f}",
        "-" if stage.wall_hours is None else _duration(stage.wall_hours),
        "-" if stage.energy_kwh is None else f"{stage.energy_kwh / 1000:,.2f} MWh",
        scaled(stage.data_bytes, "B"),
        scaled(stage.resumable_bytes, "B"),
        "-" if stage.checkpoints_written is None else str(stage.checkpoints_written),
        scaled(stage.peak_bytes, "B"),
        f"({scaled(stage.peak_bytes_other, 'B')})",
    )


def _total(stages: Sequence[StagePlan]) -> tuple[str, ...]:
    known = [stage for stage in stages if stage.flops is not None]
    timed = [stage for stage in stages if stage.gpu_hours is not None]
    walled = [stage for stage in stages if stage.wall_hours is not None]
    written = sum((stage.checkpoints_written or 0) * stage.runs for stage in stages)
    return (
        "total",
        str(sum(stage.runs for stage in stages)),
        "",
        scaled(sum((stage.tokens or 0.0) * stage.runs for stage in stages)),
        f"{sum(stage.flops or 0.0 for stage in known):.3g}",
        "",
        f"{sum(stage.gpu_hours or 0.0 for stage in timed):,.0f}" if timed else "-",
        _duration(sum(stage.wall_hours or 0.0 for stage in walled)) if walled else "-",
        f"{sum(stage.energy_kwh or 0.0 for stage in timed) / 1000:,.2f} MWh" if timed else "-",
        scaled(sum(stage.data_bytes or 0.0 for stage in stages), "B"),
        "",
        str(written),
        "",
        "",
    )


def _notes(recipe: Recipe, stages: Sequence[StagePlan], chosen: Assumptions) -> list[str]:
    lines = []
    if recipe.hardware is None:
        lines.append("hardware: not given, so no GPU-hours, wall time or energy; memory is that of "
                     "one process in float32")  # fmt: skip
    else:
        machine = recipe.hardware
        lines.append(
            f"hardware: {machine.accelerator}, {machine.peak_flops:.4g} bf16 FLOP/s, "
            f"{scaled(machine.memory_bytes, 'B')}, {machine.power_watts:.0f} W, "
            f"{machine.accelerators_per_node} a node"
        )
        lines.append(
            f"assumed: MFU {chosen.mfu:g}, {chosen.decode_rate:,.0f} sampled tokens a second and "
            f"GPU, answers {chosen.answer_share:.0%} of the longest, PUE {chosen.pue:g}"
        )
        sampled = sum(stage.rollout_gpu_hours or 0.0 for stage in stages)
        tokens = sum(stage.generated for stage in stages)
        lines.append(f"sampling: {scaled(tokens)} tokens, {sampled:,.0f} of the GPU-hours")
        tight = [item.stage for item in stages if item.peak_bytes > machine.memory_bytes]
        if tight:
            lines.append(f"does not fit: {', '.join(tight)}")
    unknown = [stage.stage for stage in stages if stage.steps is None]
    if unknown:
        lines.append(f"unknown until the data is tokenized: {', '.join(unknown)}")
    if recipe.imports:
        spared = [name for name, runs in trained_runs(recipe).items() if not runs]
        lines.append(
            f"imported: {', '.join(sorted(recipe.imports))}; so not trained here: "
            f"{', '.join(spared) or 'nothing of the table'}"
        )
    return lines + [f"  {source}" for source in SOURCES]


def scaled(number: float | None, unit: str = "") -> str:
    """Three digits with a decimal prefix: 57.6 G, 6.23 GB; - for None."""
    if number is None:
        return "-"
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g} {prefix}{unit}"
    return f"{number:.0f} {unit}".rstrip()


def _duration(hours: float) -> str:
    return f"{hours / 24:.1f} d" if hours >= 48 else f"{hours:.1f} h"
