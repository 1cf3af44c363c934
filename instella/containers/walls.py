"""What a container shows to a stage: a plan that any engine can carry out.

Paths inside are fixed, so that nothing of the host's reaches the stage. Writable are only
the output, the scratch folder and a temporary ``/tmp``.
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from instella import numerics
from instella.artifacts.handover import Handover, write_handover
from instella.artifacts.identity import PACKAGE_FOLDER
from instella.artifacts.job import Job
from instella.containers.images import Image
from instella.recipe.settings import Container

LABEL = "org.instella.stage"
KIT, RECIPE, INPUTS, OUTPUT, SCRATCH, JOB = (
    Path(name) for name in ("/kit", "/recipe", "/inputs", "/output", "/scratch", "/job")
)
# A stage that fetches runs on the host, so this folder is never there.
DOWNLOADS = Path("/downloads")
# In place of root; no user of an image has this number.
OTHER_USER = 10001
HOST_NAME = "stage"
PROCESSES = 4096

_DEVICES = {"none": (), "rocm": ("/dev/kfd", "/dev/dri"), "cuda": ()}
_ENVIRONMENT = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "LOGNAME": "instella",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONPATH": str(KIT),
    "USER": "instella",
}


@dataclass(frozen=True)
class Mount:
    """One folder of the host in the container."""

    source: Path
    target: Path
    writable: bool = False


@dataclass(frozen=True)
class Plan:
    """A container that runs one job.

    Attributes:
        name: of the container; the same for each attempt at this job.
        image: what it runs in.
        command: program and arguments.
        mounts: all that it sees of the host.
        environment: variables beside the image's own.
        user: user and group number of its processes.
        accel: ``none``, ``rocm`` or ``cuda``.
        devices: device files, for ROCm.
        groups: further groups, those of the device files.
        shm_gib: size of its shared memory.
        memory_gib: its memory, None without limit.
        caller_is_root: the stage was started by root, whose number no container gets.
    """

    name: str
    image: Image
    command: tuple[str, ...]
    mounts: tuple[Mount, ...]
    environment: Mapping[str, str]
    user: tuple[int, int]
    accel: str
    devices: tuple[str, ...]
    groups: tuple[int, ...]
    shm_gib: int
    memory_gib: int | None
    caller_is_root: bool


def plan_of(job: Job, recipe: Path, image: Image, container: Container) -> Plan:
    """Describe the container for a job, and write the job's file for it.

    Args:
        job: with the paths of the host.
        recipe: the recipe's file.
        image: of the stage.
        container: settings of the placement.
    """
    work = job.output.parent
    folder = work / "job"
    folder.mkdir(exist_ok=True)
    inside = replace(
        job,
        inputs={role: INPUTS / role for role in job.inputs},
        output=OUTPUT,
        scratch=SCRATCH,
        downloads=DOWNLOADS,
        recipe_folder=RECIPE,
    )
    write_handover(folder / "job.json", Handover(RECIPE / recipe.name, inside))
    mounts = (
        Mount(recipe.absolute().parent, RECIPE),
        Mount(folder, JOB),
        *(Mount(path, INPUTS / role) for role, path in sorted(job.inputs.items())),
        Mount(job.output, OUTPUT, writable=True),
        Mount(job.scratch, SCRATCH, writable=True),
    )
    command = ("python3", "-m", "instella", "job", str(JOB / "job.json"), "--confined")
    name = f"instella-{hashlib.sha256(os.fsencode(work)).hexdigest()[:24]}"
    plan = plan_command(name, image, container, command, mounts)
    # also for what the image starts before the job's own process sets them
    return replace(plan, environment={**plan.environment, **numerics.pins(job.numerics)})


def plan_command(
    name: str,
    image: Image,
    container: Container,
    command: tuple[str, ...],
    mounts: tuple[Mount, ...] = (),
) -> Plan:
    """Describe a container with the project's code and further folders.

    Args:
        name: of the container.
        image: what it runs in.
        container: settings of the placement.
        command: program and arguments.
        mounts: folders beside the code.
    """
    devices = _DEVICES[container.accel]
    return Plan(
        name=name,
        image=image,
        command=command,
        mounts=(
            Mount(PACKAGE_FOLDER, KIT / "instella"),
            Mount(PACKAGE_FOLDER.parent / "requirements", KIT / "requirements"),
            *mounts,
        ),
        environment=_ENVIRONMENT,
        user=_user(),
        accel=container.accel,
        devices=devices,
        groups=_groups(devices),
        shm_gib=container.shm_gib,
        memory_gib=container.memory_gib,
        caller_is_root=os.getuid() == 0,
    )


def _user() -> tuple[int, int]:
    """The caller; a number of its own where the caller is root."""
    return (os.getuid(), os.getgid()) if os.getuid() else (OTHER_USER, OTHER_USER)


def _groups(devices: Iterable[str]) -> tuple[int, ...]:
    """Groups that own the device files; by number, since an image may lack their names."""
    found = set()
    for device in devices:
        path = Path(device)
        for file in [path, *path.glob("render*"), *path.glob("card*")]:
            if file.exists() and stat.S_ISCHR(file.stat().st_mode):
                found.add(file.stat().st_gid)
    return tuple(sorted(found))


def let_in(plan: Plan) -> None:
    """Give the container's user its folders, where the caller is root."""
    if not plan.caller_is_root:
        return
    for mount in plan.mounts:
        if mount.writable:
            _give(mount.source, *plan.user)
        elif mount.target.is_relative_to(INPUTS) or mount.target == JOB:
            # Folders alone: the files below may be links to the store's own.
            for place, _, _ in os.walk(mount.source):
                os.chmod(place, 0o755)
            if mount.target == JOB:
                os.chmod(mount.source / "job.json", 0o644)


def take_back(plan: Plan) -> None:
    """Make the files of the container's user the caller's, where the caller is root."""
    if plan.caller_is_root:
        for mount in plan.mounts:
            if mount.writable:
                _give(mount.source, os.getuid(), os.getgid())


def _give(folder: Path, user: int, group: int) -> None:
    os.chown(folder, user, group)
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            os.chown(Path(place, name), user, group, follow_symlinks=False)
