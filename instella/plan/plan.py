"""A recipe's work on its machines: GPU-hours, wall time, memory, checkpoints, energy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from instella.plan import memory
from instella.plan.flops import seconds
from instella.plan.work import Work, work_of
from instella.recipe.derived import parameter_count
from instella.recipe.graph import build_graph
from instella.recipe.settings import RECIPES_CHECKPOINTS, Hardware, Policy, Preference, Recipe

# The trainer keeps so many resumable checkpoints of a stage at a time, unless told otherwise.
KEPT_CHECKPOINTS = RECIPES_CHECKPOINTS.keep


@dataclass(frozen=True)
class Assumptions:
    """What no recipe says.

    Attributes:
        mfu: share of the peak that training reaches. No figure of Instella is published;
            the nearest dense one, Llama-3.1-70B on MI325X, is about 0.38 by 6 N.
        decode_rate: tokens a second that one accelerator samples. 1,200 is what Miles'
            documentation gives for a mixture with 3B active weights on MI300X.
        answer_share: mean length of a sampled answer as a share of the longest; 1 is the
            upper bound, since no length is published.
        pue: energy of the building over that of the accelerators; 1 counts these alone.
    """

    mfu: float = 0.35
    decode_rate: float = 1200.0
    answer_share: float = 1.0
    pue: float = 1.0


@dataclass(frozen=True)
class StagePlan:
    """One stage, all runs together where not said otherwise; None where unknown.

    Attributes:
        stage, runs, steps, tokens, generated: as in ``Work``, steps and tokens of one run.
        flops: operations, sampling included.
        accelerators: of one run.
        gpu_hours: sampling included.
        rollout_gpu_hours: the sampling part.
        wall_hours: of one run after another.
        released_bytes: published weights of one run.
        resumable_bytes: one checkpoint that training continues from.
        checkpoints_written, checkpoints_kept: of one run.
        data_bytes: token arrays.
        peak_bytes: memory of one accelerator while training.
        peak_bytes_other: the same with the other choice of activation checkpointing.
        energy_kwh: of the accelerators, times the PUE.
    """

    stage: str
    runs: int
    steps: int | None
    tokens: float | None
    generated: float
    flops: float | None
    accelerators: int | None
    gpu_hours: float | None
    rollout_gpu_hours: float | None
    wall_hours: float | None
    released_bytes: float
    resumable_bytes: float
    checkpoints_written: int | None
    checkpoints_kept: int
    data_bytes: float | None
    peak_bytes: float
    peak_bytes_other: float
    energy_kwh: float | None


def plan(recipe: Recipe, rows: Mapping[str, float], assumptions: Assumptions) -> list[StagePlan]:
    """Every stage that the recipe trains, in the order they run.

    Imported checkpoints are not trained, nor are those that only they came from.

    Args:
        recipe: settings; without ``hardware`` no time and no energy is told.
        rows: stage -> rows, pairs or prompts of its data, where known.
        assumptions: what no recipe says.
    """
    works = (
        (work_of(recipe, name, rows, assumptions.answer_share), runs)
        for name, runs in trained_runs(recipe).items()
    )
    return [_stage(recipe, replace(work, runs=runs), assumptions) for work, runs in works if runs]


def trained_runs(recipe: Recipe) -> dict[str, int]:
    """Stage of the recipe to the number of its trainings, 0 where imports stand for them all."""
    graph = build_graph(recipe)
    trained = {name for name, stage in graph.items() if not stage.is_imported}
    found = {}
    for name in recipe.stages.__dataclass_fields__:
        seeds = getattr(getattr(recipe.stages, name), "seeds", ())
        names = [f"{name}_seed{seed}" for seed in seeds] or [name]
        found[name] = sum(item in trained for item in names)
    return found


def _stage(recipe: Recipe, work: Work, assumptions: Assumptions) -> StagePlan:
    hardware, weights = recipe.hardware, parameter_count(recipe.model)
    settings = getattr(recipe.stages, work.stage)
    checkpointed = settings.training.activation_checkpointing
    gpu_hours = rollout_hours = flops = None
    accelerators = _accelerators(hardware, work.stage)
    if work.training_flops is not None:
        flops = work.runs * (work.training_flops + work.rollout_flops)
        if hardware is not None:
            trained = seconds(work.training_flops, hardware.peak_flops, assumptions.mfu)
            sampled = work.generated / assumptions.decode_rate
            gpu_hours = work.runs * (trained + sampled) / 3600
            rollout_hours = work.runs * sampled / 3600
    written = None
    if work.steps is not None:
        written = max(1, -(-work.steps // settings.training.save_every))
    return StagePlan(
        stage=work.stage,
        runs=work.runs,
        steps=work.steps,
        tokens=work.tokens,
        generated=work.generated,
        flops=flops,
        accelerators=accelerators,
        gpu_hours=gpu_hours,
        rollout_gpu_hours=rollout_hours,
        wall_hours=gpu_hours / accelerators if gpu_hours is not None and accelerators else None,
        released_bytes=memory.released_bytes(weights),
        resumable_bytes=memory.resumable_bytes(weights),
        checkpoints_written=written,
        checkpoints_kept=min(KEPT_CHECKPOINTS, written or KEPT_CHECKPOINTS),
        data_bytes=work.data_bytes,
        peak_bytes=peak_bytes(recipe, work, checkpointed),
        peak_bytes_other=peak_bytes(recipe, work, not checkpointed),
        energy_kwh=_energy(hardware, gpu_hours, assumptions.pue),
    )


def peak_bytes(recipe: Recipe, work: Work, checkpointed: bool) -> float:
    """Largest memory of one accelerator in training: ``memory.training_bytes``, a whole
    gathered network, and a reference network where there is one.

    States are sharded over the accelerators of one node, as the published pretraining has
    it; the stages that shard over all of them need less. Without hardware: one process that
    gathers nothing.
    """
    weights, hardware = parameter_count(recipe.model), recipe.hardware
    settings = getattr(recipe.stages, work.stage)
    training = settings.training
    shards = 1 if hardware is None else hardware.accelerators_per_node
    total = memory.training_bytes(recipe.model, work.micro_tokens, training, checkpointed, shards)
    if hardware is not None:
        total += memory.gathered_bytes(weights, training.precision)
    if isinstance(settings, (Preference, Policy)):
        total += float(memory.WIDTHS[training.precision] * weights)
    return total


def _accelerators(hardware: Hardware | None, stage: str) -> int | None:
    if hardware is None or stage not in hardware.nodes:
        return None
    return hardware.nodes[stage] * hardware.accelerators_per_node


def _energy(hardware: Hardware | None, gpu_hours: float | None, pue: float) -> float | None:
    if hardware is None or gpu_hours is None:
        return None
    return hardware.power_watts * gpu_hours * pue / 1000
