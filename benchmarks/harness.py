"""Runs the recipe in a folder of its own, as a user would, and measures what that took.

``clone`` copies the project's own files, ``kit`` and ``instella`` call its two commands
there. A clone uses the packages of the Python that runs this module: its ``.venv`` is one
script that starts that Python, so nothing is installed again.
"""

import fnmatch
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

PROJECT = Path(__file__).resolve().parents[1]
SAMPLE_SECONDS = 0.2
# Variables through which whoever runs the tests could steer the runs under test.
STEERING = re.compile(
    r"(PYTHON|PYTEST_|SNAKEMAKE_|OMP_|MKL_|OPENBLAS_|ATEN_|NPY_|TOKENIZERS_|VIRTUAL_ENV)"
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


def clone(target: Path, recipe: str = "recipes/tiny.yaml") -> Path:
    """Copy the project's own files to ``target``, which must not exist; returns it.

    What ``.gitignore`` names stays behind, except that the downloads folder is shared.

    Args:
        target: the new folder.
        recipe: recipe file that its ``config.yaml`` names.
    """
    shutil.copytree(PROJECT, target, ignore=_ignored, symlinks=True)
    downloads = PROJECT / "downloads"
    downloads.mkdir(exist_ok=True)
    (target / "downloads").symlink_to(downloads)
    replace_in(target / "config.yaml", r"(?m)^recipe: .*$", f"recipe: {recipe}")
    _borrow_python(target)
    return target


def _ignored(folder: str, names: list[str]) -> set[str]:
    patterns = (PROJECT / ".gitignore").read_text(encoding="utf-8").split()
    at_root = Path(folder) == PROJECT
    left_out = {".git"} & set(names)
    for pattern in patterns:
        if not pattern.startswith("/") or at_root:
            left_out.update(fnmatch.filter(names, pattern.strip("/")))
    return left_out


def _borrow_python(target: Path) -> None:
    """Make ``kit`` in ``target`` find a set-up ``.venv``: this Python under its name."""
    script = target / ".venv" / "bin" / "python"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n", encoding="utf-8")
    script.chmod(0o755)
    lock = (target / "requirements" / "run.lock").read_bytes()
    stamp = f"{hashlib.sha256(lock).hexdigest()}  -\n"
    (target / ".venv" / "run.stamp").write_text(stamp, encoding="utf-8")


def replace_in(path: Path, pattern: str, replacement: str) -> None:
    """Replace the one place in a text file that matches; ValueError for none or several."""
    text, count = re.subn(pattern, replacement, path.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{path}: {pattern!r} matches {count} times, expected once")
    path.write_text(text, encoding="utf-8")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a run: this one without what steers Python or a library."""
    kept = {name: value for name, value in os.environ.items() if not STEERING.match(name)}
    return {**kept, **(extra or {})}


def kit(
    folder: Path, *options: str, timeout: float = 300.0, extra: Mapping[str, str] | None = None
) -> Finished:
    """``./kit run`` with Snakemake's options in a clone; see ``run``."""
    return run(["./kit", "run", *options], folder, timeout, extra)


def instella(
    folder: Path, *arguments: str, timeout: float = 120.0, extra: Mapping[str, str] | None = None
) -> Finished:
    """The ``instella`` command in a clone; see ``run``."""
    return run([sys.executable, "-m", "instella", *arguments], folder, timeout, extra)


def run(
    command: Sequence[str], folder: Path, timeout: float, extra: Mapping[str, str] | None = None
) -> Finished:
    """Run a command in ``folder`` to its end and measure it.

    Args:
        command: program and arguments.
        folder: where it runs.
        timeout: seconds it may take.
        extra: variables added to its environment.

    Raises:
        TimeoutError: it took longer than ``timeout`` seconds; all its processes are dead.
    """
    with tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile("w+b") as err:
        started, before = time.monotonic(), os.times()
        process = start(command, folder, out, err, extra)
        peak_tree = peak_process = 0
        while process.poll() is None:
            sizes = _resident(process.pid)
            peak_tree = max(peak_tree, sum(sizes))
            peak_process = max(peak_process, *sizes, 0)
            if time.monotonic() - started > timeout:
                kill_tree(process)
                raise TimeoutError(
                    f"{' '.join(command)} in {folder}: not done after {timeout} s\n{_text(err)}"
                )
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAMPLE_SECONDS)
        after = os.times()
        cpu = after.children_user + after.children_system
        cpu -= before.children_user + before.children_system
        wall = time.monotonic() - started
        code = process.returncode
        return Finished(code, _text(out), _text(err), wall, cpu, peak_tree, peak_process)


def start(
    command: Sequence[str],
    folder: Path,
    out: Any,
    err: Any,
    extra: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in ``folder`` in a clean environment, without input."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment(extra),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
    )


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """End a process and all its descendants with SIGKILL, at once."""
    below = descendants(process.pid)
    process.kill()
    for item in below:
        with suppress(psutil.NoSuchProcess):
            item.kill()
    process.wait()


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


def _text(file: Any) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def read_journal(results: Path) -> dict[str, list[dict[str, Any]]]:
    """Journal lines of a results folder (``results/<recipe>``), by stage."""
    return {
        path.stem: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in sorted((results / "journal").glob("*.jsonl"))
    }


def busy_seconds(journal: Mapping[str, Iterable[Mapping[str, Any]]]) -> float:
    """Seconds in which at least one stage was at work; starts are known to the second."""
    spans = sorted(
        (start, start + entry["seconds"])
        for entries in journal.values()
        for entry in entries
        for start in [datetime.fromisoformat(entry["started"]).timestamp()]
    )
    total, reached = 0.0, float("-inf")
    for begin, end in spans:
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def machine() -> dict[str, str]:
    """CPU model, cores, memory and the versions that matter for time."""
    from importlib.metadata import version

    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"(?m)^model name\s*:\s*(.*)$", cpuinfo)
    return {
        "CPU": model.group(1) if model else "unknown",
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "Python": ".".join(map(str, sys.version_info[:3])),
        "torch": version("torch"),
        "Snakemake": version("snakemake"),
    }


def record(title: str, lines: Iterable[str]) -> None:
    """Append a dated section to ``benchmarks/results.md`` and print it."""
    facts = ", ".join(f"{name} {value}" for name, value in machine().items())
    day = time.strftime("%Y-%m-%d", time.gmtime())
    text = "\n".join([f"## {title}, {day}", "", facts, "", *lines, ""])
    path = PROJECT / "benchmarks" / "results.md"
    head = "" if path.exists() else "# Measurements\n\n"
    with path.open("a", encoding="utf-8") as file:
        file.write(head + text + "\n")
    print(text)
