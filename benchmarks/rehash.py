"""Speed of the audit's rehash against public SHA-256 programs on the same files and cores.

    .venv/bin/python -m benchmarks.rehash [--folder FOLDER] [--megabytes 2048] [--rounds 5]

Without a folder, files as of a run of that size are written first: a few large ones and many
small. Each round runs, one after another in turn, the audit's ``Rehash``, ``sha256sum`` and
``openssl dgst -sha256``, the programs started by ``xargs`` with as many processes as there are
cores, largest files first. All files are in the page cache. What counts is the ratio of the
median CPU times, which other load on the machine moves little; times on the clock stand beside it.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import record
from instella.artifacts.manifest import Entry
from instella.audit.rehash import Rehash
from instella.canonical import sha256_file

TARGET = 0.9
PROGRAMS = {"sha256sum": ["sha256sum"], "openssl": ["openssl", "dgst", "-sha256"]}
SMALL, SMALL_COUNT = 20_000, 500


def main() -> int:
    """Measure and record; 1 when the audit is slower than the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="hash the files below it instead")
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rehash-") as temporary:
        folder = args.folder or write_files(Path(temporary), args.megabytes << 20)
        paths = sorted(
            (p for p in folder.rglob("*") if p.is_file()), key=lambda p: -p.stat().st_size
        )
        entries = {path: Entry(sha256_file(path), path.stat().st_size) for path in paths}
        before = peak()
        ways: dict[str, Callable[[], None]] = {"the audit": lambda: check(entries)}
        for name, command in PROGRAMS.items():
            if shutil.which(command[0]):
                ways[name] = lambda command=command: run(command, paths)  # type: ignore[misc]
        clock: dict[str, list[float]] = {name: [] for name in ways}
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(args.rounds):
            for name, way in ways.items():
                started, busy = time.monotonic(), cpu_seconds()
                way()
                clock[name].append(time.monotonic() - started)
                spent[name].append(cpu_seconds() - busy)
        grown = peak() - before
    size = sum(entry.size for entry in entries.values())
    cpu, wall = ratio_of(spent), ratio_of(clock)
    lines = [
        f"- {len(entries)} files, {size / 2**30:.2f} GiB, {args.rounds} rounds, all in the page cache",
        *(
            f"- {name}: CPU time {statistics.median(spent[name]):.2f} s, "
            f"{size / statistics.median(spent[name]) / 2**30:.2f} GiB a second of it; on the clock "
            f"{statistics.median(clock[name]):.2f} s"
            for name in ways
        ),
        f"- speed against the fastest program: by CPU time {cpu:.2f} (target: at least {TARGET}), "
        f"on the clock {wall:.2f}",
        f"- memory of the audit's process grew by {grown / 2**20:.0f} MiB",
    ]
    record("Rehash", lines)
    return int(cpu < TARGET)


def ratio_of(seconds: dict[str, list[float]]) -> float:
    """Median of the fastest program over that of the audit."""
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    own = medians.pop("the audit")
    return min(medians.values()) / own


def cpu_seconds() -> float:
    """User and system time of this process and of those it waited for."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system


def write_files(folder: Path, size: int) -> Path:
    """Files of random bytes: small ones, and the rest in a few large ones of falling size."""
    block = os.urandom(1 << 20)
    for number in range(SMALL_COUNT):
        (folder / f"small-{number}").write_bytes(os.urandom(SMALL))
    left, number = size - SMALL * SMALL_COUNT, 0
    while left > 0:
        part = min(left, max(8 << 20, left // 4))
        with (folder / f"large-{number}").open("wb") as file:
            for start in range(0, part, len(block)):
                file.write(number.to_bytes(8, "little"))
                file.write(block[8 : min(len(block), part - start)])
        left -= part
        number += 1
    return folder


def check(entries: dict[Path, Entry]) -> None:
    """Hash all files as the audit does."""
    bad = Rehash()(entries)
    assert not bad, bad


def run(command: list[str], paths: list[Path]) -> None:
    """Hash all files with a program; one process a core, some files each time."""
    cores = str(len(os.sched_getaffinity(0)))
    names = b"".join(os.fsencode(path) + b"\0" for path in paths)
    subprocess.run(
        ["xargs", "-0", "-n", "16", "-P", cores, *command],
        input=names, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip


def peak() -> int:
    """Largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
