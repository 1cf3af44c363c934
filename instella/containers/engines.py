"""Runs a plan on an engine, and sees to it that no container outlives its stage.

The container's first process holds on to the standard input that the stage gives it, and
ends when that closes, so a killed stage takes its container along. What an engine could not
remove, because it died itself, goes when the same job is started again.
"""

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from instella.artifacts.handover import run_handed_over
from instella.artifacts.job import Job
from instella.containers import docker_engine
from instella.containers.images import IMAGES_FOLDER, Image, archive_path
from instella.containers.walls import Plan, let_in, plan_of, take_back
from instella.containers.words import apptainer_words, podman_words
from instella.errors import BadUse, KitError
from instella.progress import Reporter
from instella.recipe.settings import Container

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
# Of `podman image exists`; 125 and others are podman's own troubles.
_NO_SUCH_IMAGE = 1


def in_container(
    recipe: Path, image: Image, container: Container, downloads: Path
) -> Callable[[Job], None]:
    """A stage's function that runs its code in a container.

    Args:
        recipe: the recipe's file.
        image: of the stage, from the lock.
        container: engine and what the container gets.
        downloads: folder below which archives of images lie.
    """

    def function(job: Job) -> None:
        plan = plan_of(job, recipe, image, container)
        let_in(plan)
        try:
            run_plan(plan, container.engine, job.report, downloads / IMAGES_FOLDER)
        finally:
            take_back(plan)

    return function


def run_plan(plan: Plan, engine: str, report: Reporter, images: Path) -> None:
    """Run a container to its end; it is removed however this ends.

    Args:
        plan: the container.
        engine: ``docker``, ``podman`` or ``apptainer``.
        report: gets its lines.
        images: folder of the images' archives.

    Raises:
        BadUse: no engine, or it has no such image.
        KitError: the failure of what ran.
        SystemExit: a signal asked this process to end.
    """
    with signals_raise():
        if engine == "docker":
            docker_engine.run(plan, report)
        elif engine == "podman":
            _podman(plan, report)
        else:
            _apptainer(plan, report, images)


@contextmanager
def signals_raise() -> Iterator[None]:
    """A signal that ends this process raises SystemExit, so that the container is removed."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    earlier = {number: signal.signal(number, stop) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _podman(plan: Plan, report: Reporter) -> None:
    _require("podman")
    _require_plain(plan)
    _remove_podman(plan)
    require_podman_image(plan.image)
    try:
        run_handed_over(podman_words(plan), report, stdin=subprocess.PIPE)
    finally:
        _remove_podman(plan)


def require_podman_image(image: Image) -> None:
    """podman holds the image of the lock, layer by layer.

    Raises:
        BadUse: it is not there.
        KitError: podman does not work.
    """
    exists = _ask_podman("image", "exists", str(image.config))
    if exists.returncode == _NO_SUCH_IMAGE:
        raise docker_engine.not_loaded(image, "podman")
    words = ("image", "inspect", "--format", "{{json .RootFS.Layers}}", str(image.config))
    told = _ask_podman(*words) if exists.returncode == 0 else exists
    if told.returncode:
        reason = " ".join(told.stderr.split())[-300:]
        raise KitError(f"podman: {reason or f'ended with status {told.returncode}'}")
    if tuple(json.loads(told.stdout)) != image.layers:
        raise docker_engine.not_loaded(image, "podman")


def _ask_podman(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["podman", *words], check=False, capture_output=True, text=True)


def _remove_podman(plan: Plan) -> None:
    """Remove this job's container, if there is one."""
    words = ["podman", "rm", "--force", "--ignore", "--time=2", plan.name]
    subprocess.run(words, check=False, capture_output=True)


def _apptainer(plan: Plan, report: Reporter, folder: Path) -> None:
    _require("apptainer")
    _require_plain(plan)
    if plan.caller_is_root:
        raise BadUse("apptainer runs a stage as the caller, and that is root; be another user")
    sif = sif_path(folder, plan.image)
    if not sif.is_file():
        archive = archive_path(folder, plan.image)
        raise BadUse(
            f"{sif}: not there; make it from the image with "
            f"`apptainer build {sif} docker-archive:{archive}`"
        )
    run_handed_over(apptainer_words(plan, sif), report, stdin=subprocess.PIPE)


def sif_path(folder: Path, image: Image) -> Path:
    """Where apptainer's form of an image is looked for."""
    return archive_path(folder, image).with_suffix(".sif")


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise BadUse(f"container.engine is {program}, which is not installed; install it")


def _require_plain(plan: Plan) -> None:
    """Command lines separate the parts of a mount with these signs."""
    for mount in plan.mounts:
        if any(sign in str(mount.source) for sign in ",:"):
            raise BadUse(
                f"{mount.source}: podman and apptainer mount no path with a comma or colon; move "
                "it, or use docker"
            )
