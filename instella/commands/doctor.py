"""``instella doctor``: what a run needs and this machine, or its cluster, does not have."""

import argparse
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

from instella import numerics
from instella.artifacts.identity import lock_file
from instella.cluster import booking, files, offers
from instella.cluster.needs import Needs
from instella.cluster.site import read_site
from instella.cluster.slurm import ask
from instella.commands.common import Project, add_parser, load_project
from instella.containers.images import image_name, locked, read_images
from instella.engines.elsewhere import python_of
from instella.errors import KitError
from instella.plan.plan import Assumptions, plan
from instella.recipe.derived import parameter_count
from instella.recipe.readiness import absent_files, require_ready
from instella.wheels import assert_wheels


def register(subparsers: Any) -> None:
    """Add ``doctor``."""
    doctor = add_parser(subparsers, "doctor", "what a run needs and is not there")
    doctor.add_argument(
        "--cluster", action="store_true", help="ask the SLURM cluster instead of this machine"
    )
    doctor.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print one line for each lack, and what is there; 1 if something lacks."""
    project = load_project(args)
    found = _cluster(project) if args.cluster else _machine(project)
    for line in found:
        print(f"lack: {line}")
    if not found:
        where = "the cluster" if args.cluster else "this machine"
        print(f"{where} can run {project.placement.recipe}: nothing lacks")
    return int(bool(found))


def _machine(project: Project) -> list[str]:
    """Lacks of this machine, each with what mends it."""
    lines = []
    checks = (_packages, _environments, _processor, _recipe, _engine, _cores, _memory, _disk)
    for check in checks:
        try:
            lines += check(project)
        except KitError as error:
            lines.append(str(error))
    return lines


def _packages(project: Project) -> list[str]:
    assert_wheels(lock_file(), project.workspace.store.root / "verified" / "packages")
    return []


def _environments(project: Project) -> list[str]:
    for name in sorted({name for stage in project.graph.values() for name in stage.environments}):
        python_of(name)
    return []


def _processor(project: Project) -> list[str]:
    numerics.apply_environment(project.recipe.numerics, dict(os.environ))
    return []


def _recipe(project: Project) -> list[str]:
    file = Path(project.placement.recipe)
    require_ready(project.recipe, file, project.placement.launcher)
    return absent_files(project.recipe, file)


def _engine(project: Project) -> list[str]:
    container = project.placement.container
    if container.engine == "docker":
        return _docker(project)
    if container.engine != "none" and shutil.which(container.engine) is None:
        return [
            f"container.engine is {container.engine}, which is not there; install it, or set none"
        ]
    return []


def _docker(project: Project) -> list[str]:
    """Lacks of the engine that answers: images of the recipe's stages."""
    # the engine's library takes a third of a second to load, which other commands spare
    from instella.containers import docker_engine

    recipe, container = project.recipe, project.placement.container
    found = {image_name(stage, recipe.numerics, container) for stage in project.graph.values()}
    lines = []
    with closing(docker_engine.connect()) as client:
        for name in sorted(name for name in found if name is not None):
            try:
                docker_engine.require_image(client, locked(read_images(), name))
            except KitError as error:
                lines.append(str(error))
    return lines


def _cores(project: Project) -> list[str]:
    cores = len(os.sched_getaffinity(0))
    print(f"cores: {cores}")
    wanted = {"ranks": project.placement.ranks, "workers": project.placement.workers}
    return [
        f"{name} is {count}, and there are {cores} cores; set {name}: {cores} or less"
        for name, count in wanted.items()
        if count > cores
    ]


def _memory(project: Project) -> list[str]:
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # four float32 for each weight, as ``instella plan`` counts them
    needed = project.placement.ranks * 16 * parameter_count(project.recipe.model)
    print(f"memory: {there / 1e9:.1f} GB, of which weights and moments take {needed / 1e9:.1f} GB")
    if needed > there:
        return [f"training needs {needed / 1e9:,.0f} GB of memory, and {there / 1e9:,.0f} GB are "
                "there; take another machine, or fewer ranks"]  # fmt: skip
    return []


def _disk(project: Project) -> list[str]:
    folder = project.workspace.store.root.absolute()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(place).free
    needed = 0.0
    for stage in plan(project.recipe, {}, Assumptions()):
        needed += (stage.data_bytes or 0.0) + stage.runs * stage.released_bytes * 2
        needed += stage.checkpoints_kept * stage.resumable_bytes
    print(f"disk: {free / 1e9:,.1f} GB free in {place}, at least {needed / 1e9:,.1f} GB needed")
    if free < needed:
        return [f"{place} has {free / 1e9:,.0f} GB free, and the run takes {needed / 1e9:,.0f} GB; "
                "set store in config.yaml to a larger disk"]  # fmt: skip
    return []


def _cluster(project: Project) -> list[str]:
    """Lacks of the cluster; nothing is booked."""
    placement, recipe = project.placement, project.recipe
    site = read_site(Path(placement.site) if placement.site else None)
    needs = booking.needs(project.graph, recipe, placement, site)
    _show(needs)
    lines = offers.lacks(needs, site, offers.offers())
    lines += offers.habits(ask("scontrol", "show", "config"))
    for folder in (project.workspace.store.root, project.workspace.results):
        lines += files.doubts(folder.absolute())
    print(*booking.report(project.graph, recipe, placement, site), sep="\n")
    return list(dict.fromkeys(lines))


def _show(needs: dict[str, Needs]) -> None:
    largest = max(needs.values(), key=lambda item: (item.nodes * item.ranks, item.mem_mb))
    print(
        f"largest job: {largest.nodes} nodes, on each {largest.ranks} ranks, "
        f"{largest.mem_mb:,} MB and {largest.gpus} accelerators"
    )
