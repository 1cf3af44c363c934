"""Commands in a copy of the project: started in a clean environment, measured, ended.

Each command leads a session of its own, so that its end takes everything it started along.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

SAMPLE_SECONDS = 0.2
# A killed process is gone once the kernel has run it; nothing waits longer for that.
END_SECONDS = 10.0
# libfaketime leaves these of the process that it was loaded in first, if that runs another
# program in its place or is killed.
SHARED_MEMORY = Path("/dev/shm")
CLOCK_FILES = ("faketime_shm_{}", "sem.faketime_sem_{}")
# Variables through which whoever calls could steer the runs under test.
STEERING = re.compile(
    r"(PYTHON|PYTEST_|SNAKEMAKE_|OMP_|KMP_|MKL_|ONEDNN_|OPENBLAS_|ATEN_|NPY_|TOKENIZERS_"
    r"|VIRTUAL_ENV)"
)


@dataclass(frozen=True)
class Finished:
    """A command that came to its end.

    Attributes:
        code: exit status.
        out, err: what it printed.
        wall, cpu: seconds; CPU time counts user and system time of all its processes.
        peak_tree: largest sum of resident memory of all its processes at one moment, in
            bytes, sampled every 0.2 s; pages shared by several processes count for each.
        peak_process: largest resident memory of a single process, in bytes, sampled.
    """

    code: int
    out: str
    err: str
    wall: float
    cpu: float
    peak_tree: int
    peak_process: int


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a run: this one without what steers Python or a library."""
    kept = {name: value for name, value in os.environ.items() if not STEERING.match(name)}
    return {**kept, **(extra or {})}


def start(
    command: Sequence[str],
    folder: Path,
    out: IO[bytes],
    err: IO[bytes],
    extra: Mapping[str, str] | None = None,
    umask: int = -1,
) -> subprocess.Popen[bytes]:
    """Start a command in ``folder`` in a clean environment and a new session, without input.

    Args:
        command: program and arguments.
        folder: where it runs.
        out, err: files that get what it prints.
        extra: variables added to its environment.
        umask: of the command; -1 keeps the caller's.
    """
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment(extra),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
        umask=umask,
    )


def run(
    command: Sequence[str],
    folder: Path,
    timeout: float,
    extra: Mapping[str, str] | None = None,
    umask: int = -1,
) -> Finished:
    """Run a command in ``folder`` to its end and measure it; arguments as for ``start``.

    Args:
        timeout: seconds it may take.

    Raises:
        TimeoutError: it took longer than ``timeout`` seconds. Then, and when this call is
            interrupted, all its processes are dead.
    """
    with tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile("w+b") as err:
        started, before = time.monotonic(), os.times()
        process = start(command, folder, out, err, extra, umask)
        try:
            peak_tree, peak_process = _watch(process, started + timeout)
            if process.returncode is None:
                raise TimeoutError(
                    f"{' '.join(command)} in {folder}: not done after {timeout} s\n{_text(err)}"
                )
        finally:
            kill_tree(process)
        after = os.times()
        cpu = after.children_user + after.children_system
        cpu -= before.children_user + before.children_system
        wall = time.monotonic() - started
        code = process.returncode
        return Finished(code, _text(out), _text(err), wall, cpu, peak_tree, peak_process)


def _watch(process: subprocess.Popen[bytes], deadline: float) -> tuple[int, int]:
    """Wait until a process ends, or the deadline; its peaks of memory as in ``Finished``."""
    peak_tree = peak_process = 0
    while process.poll() is None and time.monotonic() < deadline:
        sizes = _resident(process.pid)
        peak_tree = max(peak_tree, sum(sizes))
        peak_process = max(peak_process, *sizes, 0)
        with suppress(subprocess.TimeoutExpired):
            process.wait(SAMPLE_SECONDS)
    return peak_tree, peak_process


def instella(
    folder: Path, *arguments: str, timeout: float = 120.0, extra: Mapping[str, str] | None = None
) -> Finished:
    """The ``instella`` command in a copy of the project; see ``run``."""
    return run([sys.executable, "-m", "instella", *arguments], folder, timeout, extra)


def kit(
    folder: Path, *options: str, timeout: float = 300.0, extra: Mapping[str, str] | None = None
) -> Finished:
    """``./kit run`` with Snakemake's options in a copy of the project; see ``run``."""
    return run(["./kit", "run", *options], folder, timeout, extra)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """End a process of ``start``, its descendants and its session with SIGKILL.

    Returns when the descendants are gone, or after 10 s; what libfaketime kept for them in
    shared memory is gone then too.
    """
    below = descendants(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for item in below:
        with suppress(psutil.NoSuchProcess):
            item.kill()
    process.wait()
    deadline = time.monotonic() + END_SECONDS
    while any(map(runs, below)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in (process.pid, *(item.pid for item in below)):
        for name in CLOCK_FILES:
            with suppress(PermissionError):  # somebody else's, of a process that had this number
                (SHARED_MEMORY / name.format(pid)).unlink(missing_ok=True)


def runs(process: psutil.Process) -> bool:
    """Whether a process still exists; one that ended and was not waited for does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below ``pid``; none when it has ended."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def _resident(pid: int) -> list[int]:
    sizes = []
    with suppress(psutil.NoSuchProcess):
        for process in [psutil.Process(pid), *descendants(pid)]:
            with suppress(psutil.NoSuchProcess):
                sizes.append(process.memory_info().rss)
    return sizes


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
