"""Hands a prepared job to another process: into a container, or to the ranks of a cluster.

Whoever runs the stage looks its identity up, places the inputs and publishes the output;
the process in between gets a file that describes the job, and nothing else of the run. Its
lines come back over stderr, its failure as the exit status and the last line of the command
line's own errors. Where several processes share the job, and what started them has a status
and last words of its own, the first that fails writes its failure beside the job's file.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from instella import errors
from instella.artifacts.job import Job
from instella.canonical import json_bytes, read_json
from instella.errors import ERROR_PREFIX, BadUse, KitError, MachineError
from instella.progress import Reporter
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Checkpoints, Sharding

FORMAT = "instella.job/1"
_FOLDERS = ("output", "scratch", "downloads", "recipe_folder")


@dataclass(frozen=True)
class Handover:
    """A job as the other process reads it.

    Attributes:
        recipe: path of the recipe file there, from which it takes settings and numerics class.
        job: with the paths there.
    """

    recipe: Path
    job: Job


def write_handover(path: Path, handover: Handover) -> None:
    """Write the description of a job as canonical JSON."""
    job = handover.job
    value = {
        "format": FORMAT,
        "recipe": str(handover.recipe),
        "stage": job.stage,
        "inputs": {role: str(folder) for role, folder in job.inputs.items()},
        **{name: str(getattr(job, name)) for name in _FOLDERS},
        "ranks": job.ranks,
        "workers": job.workers,
        "units": None if job.units is None else list(job.units),
        "sharding": asdict(job.sharding),
        "checkpoints": asdict(job.checkpoints),
    }
    path.write_bytes(json_bytes(value))


def read_handover(path: Path, report: Reporter | None = None) -> tuple[Handover, str]:
    """The job that a file describes, and the kind of its stage.

    Args:
        path: written by ``write_handover``.
        report: progress lines of the job; on stderr without it.

    Raises:
        BadUse: the file is no job, or its recipe has no such stage.
        VerificationError: the file is not canonical JSON.
    """
    value = _checked(path)
    recipe_file = Path(value["recipe"])
    recipe = read_recipe(recipe_file)
    stage = build_graph(recipe).get(value["stage"])
    if stage is None:
        raise BadUse(f"{path}: recipe {recipe_file} has no stage {value['stage']!r}")
    job = Job(
        stage=stage.name,
        settings=stage.settings,
        inputs={role: Path(folder) for role, folder in value["inputs"].items()},
        numerics=recipe.numerics,
        ranks=value["ranks"],
        workers=value["workers"],
        units=None if value["units"] is None else tuple(value["units"]),
        sharding=Sharding(**value["sharding"]),
        checkpoints=Checkpoints(**value["checkpoints"]),
        report=report or Reporter(stage.name),
        **{name: Path(value[name]) for name in _FOLDERS},
    )
    return Handover(recipe_file, job), stage.kind


def _checked(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except OSError as error:
        raise BadUse(f"{path}: {error.strerror}") from None
    wanted = {"format", "recipe", "stage", "inputs", *_FOLDERS, "ranks", "workers", "units"}
    wanted |= {"sharding", "checkpoints"}
    if not isinstance(value, dict) or value.get("format") != FORMAT or set(value) != wanted:
        raise BadUse(f"{path}: not a job of format {FORMAT}; it is written by instella stage")
    return value


def write_failure(path: Path, error: Exception) -> None:
    """Say why a job failed, for ``run_handed_over``; the first of its processes is heard.

    Args:
        path: the job's file.
        error: what ended it.
    """
    known = isinstance(error, KitError)
    value: dict[str, Any] = {
        "kind": type(error).__name__ if known else KitError.__name__,
        "text": str(error) if known else f"{type(error).__name__}: {error}",
    }
    if isinstance(error, OSError) and error.errno is not None:
        value.update(errno=error.errno, file=str(error.filename or ""))
    # Said already, or the disk is full: then the command line's own error is what is left.
    with suppress(OSError), _failure_file(path).open("xb") as file:
        file.write(json_bytes(value))


def _failure_file(path: Path) -> Path:
    return path.with_suffix(".failed")


def _told(path: Path) -> Exception | None:
    """The failure that a process wrote beside its job's file; None if none did."""
    try:
        value = json.loads(_failure_file(path).read_bytes())
        if "errno" in value:
            return OSError(value["errno"], os.strerror(value["errno"]), value["file"] or None)
        kind = vars(errors).get(value["kind"], KitError)
        return (kind if _is_error(kind) else KitError)(str(value["text"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # killed before or while it wrote


def run_handed_over(
    command: Sequence[str],
    report: Reporter,
    environment: Mapping[str, str] | None = None,
    job_file: Path | None = None,
    stdin: int = subprocess.DEVNULL,
) -> None:
    """Run a command that ends in ``instella job FILE``; relay its lines, raise its failure.

    Args:
        command: program and arguments.
        report: gets every line of its stderr.
        environment: its variables; those of this process without it.
        job_file: the job's file, where its processes write failures beside it.
        stdin: of the command; ``subprocess.PIPE``: closed when this process ends, however it does.

    Raises:
        KitError: what a process wrote, or else the command's own error, of the class its exit
            status tells.
        OSError: what a process met that was none of the kit's own errors, such as a full disk.
    """
    if job_file is not None:
        _failure_file(job_file).unlink(missing_ok=True)
    with subprocess.Popen(
        command,
        env=environment,
        stdin=stdin,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            assert process.stderr is not None
            last = relay(process.stderr, report)
            code = process.wait()
        finally:
            process.kill()
    if code:
        told = None if job_file is None else _told(job_file)
        raise told or failure(command[0], code, last)


def relay(lines: Iterable[str], report: Reporter) -> str:
    """Print a job's lines but for its own error; that one, or else the last of them."""
    last = spoken = ""
    for line in lines:
        last = line.rstrip("\n")
        if last.startswith(ERROR_PREFIX):
            spoken = last
        else:
            report.relay(last)
    return spoken or last


def failure(program: str, code: int, line: str) -> KitError:
    """The error of a job that ended with a status, and its last line."""
    if line.startswith(ERROR_PREFIX):
        kinds = [kind for kind in vars(errors).values() if _is_error(kind)]
        kind = next((kind for kind in kinds if kind.exit_code == code), KitError)
        return kind(line.removeprefix(ERROR_PREFIX))
    told = f": {line}" if line else " and no message"
    name = _signal(code)
    kind = MachineError if name else KitError
    return kind(f"{program} ended with status {code}{name}{told}")


def _signal(code: int) -> str:
    """Name of the signal that a status tells, as Python (-N) or a container (128 + N) does."""
    number = -code if code < 0 else code - 128
    name = next((item.name for item in signal.Signals if item == number), None)
    if name is None:
        return ""
    likely = ", most likely for lack of memory" if number == signal.SIGKILL else ""
    return f" ({name}{likely})"


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, KitError)
