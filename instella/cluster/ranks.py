"""Starts the ranks of a stage on the nodes of a SLURM job, and what each rank does first."""

import os
import shlex
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from instella import stopping
from instella.artifacts.handover import Handover, run_handed_over, write_handover
from instella.artifacts.job import Job
from instella.cluster.allocation import Allocation
from instella.cluster.needs import ranks_per_node
from instella.cluster.site import Site
from instella.errors import BadUse
from instella.recipe.settings import Placement, Recipe
from instella.stopping import STOP_AT

SRUN, TORCHRUN = "srun", "torchrun"
PORT = "MASTER_PORT"
# The same for NCCL, RCCL and gloo.
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def on_nodes(
    allocation: Allocation,
    placement: Placement,
    recipe: Recipe,
    site: Site,
    stamps: Path,
    here: Callable[[Job], None],
) -> Callable[[Job], None]:
    """A stage's function that runs its code in ranks on every node of this SLURM job.

    A single rank is this process: SLURM already started it as a step of its own.

    Args:
        allocation: the job.
        placement: launcher, ranks of a node, recipe file.
        recipe: decides how many ranks a node of accelerators has.
        site: interface, variables, cores of a rank.
        stamps: folder of earlier checks of the packages, which every node reaches.
        here: runs the stage's code in this process.
    """

    def function(job: Job) -> None:
        per_node = ranks_per_node(recipe, placement)
        ranks = allocation.nodes * per_node
        if ranks == 1:
            os.environ.update(variables(allocation, site))
            stopping.listen()
            return here(job)
        job.report.say(f"{ranks} ranks on {allocation.nodes} nodes of job {allocation.job}")
        file = job.scratch.parent / "job.json"
        write_handover(file, Handover(Path(placement.recipe).absolute(), replace(job, ranks=ranks)))
        command = ["-m", "instella", "job", str(file), "--stamps", str(stamps.absolute())]
        start = _torchrun if placement.launcher == TORCHRUN else _srun
        words = start(allocation, per_node, site, command)
        environment = {**os.environ, **variables(allocation, site)}
        return run_handed_over(words, job.report, environment, file)

    return function


def variables(allocation: Allocation, site: Site) -> Mapping[str, str]:
    """What the ranks' environment gains.

    The port is free on this machine, the first of the job, where rank 0 will be.
    """
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    found = {PORT: str(port), STOP_AT: str(allocation.end - site.stop_seconds)}
    if site.interface is not None:
        found.update(dict.fromkeys(INTERFACES, site.interface))
    return {**found, **(site.environment or {})}


def _srun(allocation: Allocation, per_node: int, site: Site, command: list[str]) -> list[str]:
    """One task a rank; ``become_rank`` turns srun's variables into torchrun's."""
    return [
        *_step(allocation, per_node, site.cpus_per_rank), sys.executable, *command, "--from-srun",
    ]  # fmt: skip


def _torchrun(allocation: Allocation, per_node: int, site: Site, command: list[str]) -> list[str]:
    """One torchrun a node, which starts its ranks."""
    script = (
        f"exec {shlex.quote(sys.executable)} -m torch.distributed.run --nnodes={allocation.nodes} "
        f'--nproc-per-node={per_node} --node-rank="$SLURM_NODEID" '
        f'--master-addr="$SLURM_LAUNCH_NODE_IPADDR" --master-port="${PORT}" '
        f"{shlex.join(command)}"
    )
    step = _step(allocation, 1, per_node * site.cpus_per_rank)
    return [*step, "sh", "-c", script]


def _step(allocation: Allocation, tasks: int, cores: int) -> list[str]:
    """srun over the whole job; a task that fails ends all others."""
    return [
        "srun",
        f"--jobid={allocation.job}",
        f"--nodes={allocation.nodes}",
        f"--ntasks={allocation.nodes * tasks}",
        f"--ntasks-per-node={tasks}",
        f"--cpus-per-task={cores}",
        "--kill-on-bad-exit=1",
        "--distribution=block",
        "--export=ALL",
    ]


def become_rank() -> None:
    """Set torchrun's variables in a task of srun.

    The master is the machine that called srun, by the address that the node was told.

    Raises:
        BadUse: this is no task of srun.
    """
    names = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID",
             "MASTER_ADDR": "SLURM_LAUNCH_NODE_IPADDR"}  # fmt: skip
    for name, source in names.items():
        if source not in os.environ:
            raise BadUse(f"{source} is not set: this is no task of srun")
        os.environ[name] = os.environ[source]
