"""What a stage needs on a cluster, by the recipe's ``hardware`` and its plan.

Read by Snakemake while it parses, so nothing here imports torch or numpy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instella.cluster.site import Site
from instella.recipe.derived import parameter_count
from instella.recipe.graph import Stage
from instella.recipe.settings import Placement, Recipe

LOCAL = "local"
# Classes whose network runs on the processor.
CPU_CLASSES = ("portable-x86", "native-cpu")
# Kinds that run the network without training it.
MEASURING = ("evaluate", "baseline")
# A float32 weight, its gradient and two moments are 16 bytes; half as much again for copies
# at a checkpoint. The rest is Python with torch, buffers and the page cache.
RANK_BYTES_A_WEIGHT = 24
RANK_BASE_MB = 3000
MIN_TRAINING_MB = 8000
# The plan is a formula, and a job that ends early costs nothing.
TIME_RESERVE = 1.5
MIN_MINUTES = 30
UNKNOWN_MINUTES = 240
# MB and minutes of stages that do not train, by kind.
DEFAULT = (4000, 60)
BY_KIND = {
    "merge": (8000, 60),
    "evaluate": (8000, 120),
    **dict.fromkeys(
        ("synthetic_abstract", "synthetic_program", "synthetic_values", "synthetic_solution"),
        (4000, 1440),
    ),
}


@dataclass(frozen=True)
class Needs:
    """What one job of a stage books.

    Attributes:
        nodes: machines.
        ranks: processes of one machine.
        gpus: accelerators of one machine.
        mem_mb: memory of one machine, in MB of 2^20 bytes.
        minutes: of one job.
        trains: goes on in the next job when the time of one is over.
    """

    nodes: int
    ranks: int
    gpus: int
    mem_mb: int
    minutes: int
    trains: bool


def usual(stage: Stage | None) -> tuple[int, int]:
    """MB and minutes of a stage where nothing is planned; of any other stage for None."""
    if stage is None:
        return DEFAULT
    return (MIN_TRAINING_MB, UNKNOWN_MINUTES) if stage.trains else BY_KIND.get(stage.kind, DEFAULT)


def ranks_per_node(recipe: Recipe, placement: Placement) -> int:
    """Processes of a training stage on one node: its accelerators, or the placement's ranks."""
    if recipe.hardware is not None and recipe.numerics not in CPU_CLASSES:
        return recipe.hardware.accelerators_per_node
    return placement.ranks


def base_stage(recipe: Recipe, name: str) -> str:
    """The stage as ``recipe.stages`` and ``hardware.nodes`` call it: seeds go by their mean."""
    known = recipe.stages.__dataclass_fields__
    return next((item for item in known if name == item or name.startswith(f"{item}_seed")), name)


def minutes_planned(recipe: Recipe) -> Mapping[str, float]:
    """Stage of ``recipe.stages`` to the minutes that one run of it takes, where they are known."""
    if recipe.hardware is None:
        return {}
    # Here, since Snakemake reads this module in every run, and few of them book anything.
    from instella.plan.plan import Assumptions, plan

    planned = plan(recipe, {}, Assumptions())
    return {
        item.stage: 60 * item.wall_hours / item.runs
        for item in planned
        if item.wall_hours is not None
    }


def needs_of(stage: Stage, recipe: Recipe, placement: Placement, site: Site) -> Needs:
    """What a stage books for its first attempt.

    Args:
        stage: of the recipe's graph.
        recipe: hardware, network and plan.
        placement: ranks of a node.
        site: limits.
    """
    accelerated = recipe.hardware is not None and recipe.numerics not in CPU_CLASSES
    if not stage.trains:
        mem_mb, minutes = usual(stage)
        gpus = int(accelerated and stage.kind in MEASURING)
        return Needs(1, 1, gpus, mem_mb, min(minutes, site.max_minutes), False)
    base = base_stage(recipe, stage.name)
    ranks = ranks_per_node(recipe, placement)
    nodes = recipe.hardware.nodes.get(base, 1) if recipe.hardware is not None else 1
    wanted = minutes_planned(recipe).get(base)
    minutes = UNKNOWN_MINUTES if wanted is None else max(MIN_MINUTES, int(TIME_RESERVE * wanted))
    each = RANK_BASE_MB + RANK_BYTES_A_WEIGHT * parameter_count(recipe.model) // 2**20
    return Needs(
        nodes=nodes,
        ranks=ranks,
        gpus=ranks if accelerated else 0,
        mem_mb=site.memory_mb or max(MIN_TRAINING_MB, ranks * each),
        minutes=min(minutes, site.max_minutes),
        trains=True,
    )


def booked(needs: Needs, site: Site, attempt: int) -> dict[str, Any]:
    """Resources as the slurm executor names them.

    Memory and time grow with the attempt, time up to the site's longest job; a node's memory
    that the site file names stays.

    Args:
        needs: of the first attempt.
        site: names.
        attempt: from 1.
    """
    tasks = needs.nodes * needs.ranks
    partition = site.partition if needs.trains or needs.gpus else site.cpu_partition
    options = list(site.options)
    if needs.gpus:
        kind = f"{site.gpu_type}:" if site.gpu_type else ""
        # Not the resources gpu and gres: with them the executor asks for tasks per GPU.
        options.append(f"--gpus-per-node={kind}{needs.gpus}")
    fixed = needs.trains and site.memory_mb is not None
    found: dict[str, Any] = {
        "mem_mb": needs.mem_mb if fixed else needs.mem_mb * attempt,
        "runtime": min(needs.minutes * attempt, site.max_minutes),
        # A single task says nothing: what is said of each job of a group adds up.
        "nodes": needs.nodes if tasks > 1 else None,
        "tasks": tasks if tasks > 1 else None,
        # Without srun around the whole job: the stage starts the ranks, and signals that
        # SLURM sends to job steps reach nothing but them.
        "mpi": "srun" if tasks > 1 else None,
        "cpus_per_task": site.cpus_per_rank if needs.trains else None,
        "slurm_partition": partition or site.partition,
        "slurm_account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        "slurm_extra": " ".join(options) or None,
    }
    return {name: value for name, value in found.items() if value is not None}
