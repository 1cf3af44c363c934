"""``instella stage NAME`` runs one stage; ``instella stages`` lists the graph.

``instella job FILE`` runs the code of a stage on inputs that are in place, as one of the
processes to which ``instella stage`` hands a job over. ``instella requeue`` ends a SLURM job.
"""

import argparse
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from instella import numerics, stopping
from instella.artifacts.handover import read_handover, write_failure
from instella.artifacts.identity import lock_file
from instella.artifacts.job import Job
from instella.artifacts.runner import make_units, run_stage
from instella.cluster import allocation, ranks
from instella.cluster.allocation import Allocation
from instella.cluster.keeping import in_jobs
from instella.cluster.needs import LOCAL
from instella.cluster.site import read_site
from instella.commands.common import Project, add_parser, load_project
from instella.containers.inside import end_with_caller, explained
from instella.errors import BadUse, KitError, Stopped
from instella.progress import Reporter
from instella.recipe.graph import Stage
from instella.wheels import assert_wheels

KINDS_WITH_UNITS = ("tokens_text", "tokens_chat", "tokens_preference", "tokens_prompts")


def register(subparsers: Any) -> None:
    """Add ``stage`` and ``stages``."""
    stage = add_parser(subparsers, "stage", "run one stage, or take its result from the store")
    stage.add_argument("name", metavar="STAGE")
    stage.add_argument("--log", type=Path, help="file that gets the progress lines too")
    stage.add_argument(
        "--units", metavar="I/N", type=_units,
        help="of a tokens stage: only make share I of N of its units, for the stage to find",
    )  # fmt: skip
    stage.set_defaults(run=run_one)
    job = add_parser(subparsers, "job", "run a stage's code on a job that was handed over")
    job.add_argument("file", type=Path, metavar="FILE", help="description of the job")
    job.add_argument("--stamps", type=Path, help="folder of earlier checks of the packages")
    job.add_argument("--from-srun", action="store_true", help="be the rank of this task of srun")
    job.add_argument("--confined", action="store_true", help="be the process of a container")
    job.set_defaults(run=run_job)
    requeue = add_parser(subparsers, "requeue", "queue this SLURM job again if it was preempted")
    requeue.set_defaults(run=run_requeue)
    stages = add_parser(subparsers, "stages", "list stages, kinds and inputs")
    stages.set_defaults(run=run_list)


def _units(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    share, shares = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= share <= shares:
        raise argparse.ArgumentTypeError(f"{text!r}: write for example 1/8, up to 8/8")
    return share, shares


def run_one(args: argparse.Namespace) -> int:
    """Run one stage of the recipe, or make a share of its units."""
    project = load_project(args)
    stage = project.stage(args.name)
    if args.units is not None and stage.kind not in KINDS_WITH_UNITS:
        names = ", ".join(n for n, s in project.graph.items() if s.kind in KINDS_WITH_UNITS)
        raise BadUse(f"--units: {stage.name} has no units to share out; {names} have")
    numerics.apply_environment(project.recipe.numerics)
    if args.log is not None:
        args.log.parent.mkdir(parents=True, exist_ok=True)
    report = Reporter(stage.name, args.log)
    try:
        job = None if project.placement.launcher == LOCAL else allocation.current()
        function = _function(project, stage, job)
        try:
            what = (stage, project.graph, project.workspace, project.toolchain(), function)
            if args.units is None:
                run_stage(*what, report)
            else:
                make_units(*what, args.units, report)
        except Stopped as error:
            if job is None:
                raise
            allocation.queue_again(job, report, error)
    except Exception as error:
        if args.log is not None:
            text = str(error) if isinstance(error, KitError) else traceback.format_exc()
            with args.log.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")
        raise
    return 0


def _function(
    project: Project, stage: Stage, allocated: Allocation | None
) -> Callable[[Job], None]:
    """The stage's code: here, in a container, or on the nodes of this SLURM job if it trains."""
    stamps = project.workspace.store.root / "verified" / "packages"
    placement = project.placement
    contained = project.contained(stage)
    if contained is not None:
        if placement.launcher != LOCAL and stage.trains:
            raise BadUse(
                f"{stage.name}: launcher is {placement.launcher}, and containers run on one "
                "machine; set launcher: local, or container.engine: none"
            )
        return contained
    here = _guarded(stage.kind, project.recipe.numerics, stamps)
    if placement.launcher == LOCAL:
        return here
    site = read_site(Path(placement.site) if placement.site else None)
    if not stage.trains:
        return here if allocated is None else in_jobs(here, allocated, site.stop_seconds)
    if allocated is None:
        raise BadUse(
            f"{stage.name}: launcher is {placement.launcher}, and this is no SLURM job: run it with "
            "--profile workflow/profiles/slurm, or with launcher: local"
        )
    return ranks.on_nodes(allocated, placement, project.recipe, site, stamps, here)


def run_job(args: argparse.Namespace) -> int:
    """Run a stage's function on a handed-over job; nothing is looked up or published.

    Where ranks share the job, each of them is such a process, and one that fails says why
    beside the job's file.
    """
    if args.confined:
        return _run_confined(args.file)
    stopping.listen()
    try:
        if args.from_srun:
            ranks.become_rank()
        handover, kind = read_handover(args.file)
        # what torchrun tells its ranks; it steers no arithmetic
        told = {name: os.environ[name] for name in os.environ if name.startswith("TORCHELASTIC_")}
        numerics.apply_environment(handover.job.numerics)
        os.environ.update(told)
        _guarded(kind, handover.job.numerics, args.stamps)(handover.job)
    except Exception as error:
        write_failure(args.file, error)
        raise
    return 0


def _run_confined(file: Path) -> int:
    """Run a job in a container, where nothing can be written beside the job's file."""
    end_with_caller()
    handover, kind = read_handover(file)
    numerics.apply_environment(handover.job.numerics)
    with explained(handover.job.stage):
        _guarded(kind, handover.job.numerics, None)(handover.job)
    return 0


def _guarded(kind: str, numerics_class: str, stamps: Path | None) -> Callable[[Job], None]:
    """The stage's function after a check of the packages, between two of the numerics class.

    Torch is checked only where the stage has loaded it; the second check comes before
    anything is published, so that a stage cannot leave the class on its way.
    """

    def function(job: Job) -> None:
        assert_wheels(lock_file(), stamps)
        module = importlib.import_module(f"instella.stages.{kind}")
        _assert_if_loaded(numerics_class)
        if job.units is None:
            module.run(job)
        else:
            module.tokenized(job).make_share(*job.units)
        _assert_if_loaded(numerics_class)

    return function


def _assert_if_loaded(numerics_class: str) -> None:
    if "torch" in sys.modules:
        numerics.assert_active(numerics_class)


def run_requeue(args: argparse.Namespace) -> int:
    """Put the job of this process back into the queue if it ends for being preempted.

    The profile has every job call it that fails, whatever of it the warning signal ended.

    Raises:
        Stopped: the job is not put back.
    """
    job = allocation.current()
    if job is None:
        raise BadUse("this is no SLURM job: requeue is called at the end of one")
    if allocation.is_preempted(job):
        preempted = Stopped("ended to make room for another job")
        allocation.queue_again(job, Reporter("requeue"), preempted)
    return 0


def run_list(args: argparse.Namespace) -> int:
    """Print one line a stage: name, kind or import, whether it has a result, what it reads."""
    project = load_project(args)
    width = max(len(name) for name in project.graph)
    for name, stage in project.graph.items():
        state = "done" if project.workspace.manifest(name).is_file() else "-"
        inputs = ", ".join(dict.fromkeys(stage.inputs.values()))
        kind = "imported" if stage.is_imported else stage.kind
        print(f"{name:{width}}  {kind:17}  {state:4}  {inputs}".rstrip())
    return 0
