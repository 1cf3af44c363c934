"""How time and memory grow when stages, ledger, files or bytes become ten and a hundred times more.

    ./kit setup plots
    .venv/bin/python -m benchmarks.growth [--most 100]

All figures are CPU time and the memory of the largest process of whole commands, on `nano`:

- stages: seeds of pretraining stage 2, 3 at 1x, for a dry run and ``instella status``;
- ledger: epochs of pretraining stage 1 in finished runs, for ``instella audit``;
- files: small objects that a store holds, for ``store verify`` and ``store gc --dry-run``;
- bytes: size of a store of a few files, for ``store verify``.

A line that grows at most linearly lies below the dashed one in ``docs/growth.svg``.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import record
from instella.artifacts.store import Store
from instella.prove.copies import PROJECT, clone, replace_in
from instella.prove.processes import Finished, instella, kit, run

RECIPE = "recipes/nano.yaml"
TIMEOUT_SECONDS = 3600.0
FILES, BYTES = 100, 20 << 20
LARGE_FILES = 4
PLOTS = PROJECT / ".venvs" / "plots" / "bin" / "python"


@dataclass(frozen=True)
class Point:
    """One command at one size.

    Attributes:
        series: what grows, and the command.
        times: how many times more than at first.
        amount: in words, such as ``137 stages``.
        cpu: seconds of CPU time.
        memory: of the largest process, in bytes.
    """

    series: str
    times: int
    amount: str
    cpu: float
    memory: int


def main() -> int:
    """Measure, record and draw; 1 when something grows faster than its amount."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=100, choices=(1, 10, 100))
    most = parser.parse_args().most
    if not PLOTS.is_file():
        raise SystemExit("what draws the plot is not there; ./kit setup plots puts it there")
    sizes = [times for times in (1, 10, 100) if times <= most]
    points = [point for way in (stages, ledger, files, size) for point in measured(way, sizes)]
    grown = growth(points)
    lines = ["| | amount | CPU time, s | memory, MB |", "|---|---|---|---|"]
    lines += [
        f"| {item.series} | {item.amount} | {item.cpu:.2f} | {item.memory / 1e6:.0f} |"
        for item in points
    ]
    lines += ["", *(f"- {name}: CPU time {cpu:.1f} times, memory {memory:.1f} times at "
                    f"{sizes[-1]} times" for name, (cpu, memory) in grown.items())]  # fmt: skip
    record("Growth", lines)
    draw(points)
    return int(any(max(figures) > sizes[-1] for figures in grown.values()))


def measured(way: Callable[[Path, int], list[Point]], sizes: list[int]) -> list[Point]:
    """The points of one way at each size, each in a new copy of the project."""
    points = []
    for times in sizes:
        with tempfile.TemporaryDirectory(prefix="growth-") as temporary:
            points += way(clone(Path(temporary, "project"), RECIPE), times)
    return points


def growth(points: list[Point]) -> dict[str, tuple[float, float]]:
    """CPU time and memory at the last size over those at the first, for each series."""
    ends: dict[str, list[Point]] = {}
    for item in points:
        ends.setdefault(item.series, []).append(item)
    return {
        name: (found[-1].cpu / found[0].cpu, found[-1].memory / found[0].memory)
        for name, found in ends.items()
    }


def point(series: str, times: int, amount: str, done: Finished) -> Point:
    """What a command took.

    Raises:
        SystemExit: it failed.
    """
    if done.code:
        raise SystemExit(f"{series} at {times} times ended with {done.code}\n{done.err}")
    return Point(series, times, amount, done.cpu, done.peak_process)


def stages(folder: Path, times: int) -> list[Point]:
    """More seeds: a dry run, and status before anything ran."""
    more = "".join(f", {10000 + number}" for number in range(3 * (times - 1)))
    replace_in(folder / RECIPE, r"(?<=seeds: \[5796, 6198, 8915)", more)
    # The first dry run fills caches, as it does for a user.
    snakemake = [sys.executable, "-m", "snakemake", "-n", "--quiet", "--cores", "1"]
    run(snakemake, folder, TIMEOUT_SECONDS)
    dry = run(snakemake, folder, TIMEOUT_SECONDS)
    status = instella(folder, "status", "--json", timeout=TIMEOUT_SECONDS)
    amount = f"{len(json.loads(status.out)['stages'])} stages"
    return [point("stages: dry run", times, amount, dry),
            point("stages: status", times, amount, status)]  # fmt: skip


def ledger(folder: Path, times: int) -> list[Point]:
    """A longer first stage, run for real, and audited."""
    schedule = "      schedule: {kind: linear, warmup_steps: 20"
    replace_in(folder / RECIPE, re.escape(schedule), f"      epochs: {times}\n{schedule}")
    done = kit(folder, "--cores", "2", timeout=TIMEOUT_SECONDS)
    path = folder / "results/nano/pretrain_stage1"
    if done.code:
        raise SystemExit(done.err)
    rows = sum(1 for _ in next(path.rglob("*.ledger.jsonl")).open("rb"))
    audit = instella(folder, "audit", timeout=TIMEOUT_SECONDS)
    return [point("ledger: audit", times, f"{rows} steps", audit)]


def files(folder: Path, times: int) -> list[Point]:
    """A store of many small objects."""
    fill(folder, FILES * times, 4096)
    return store_points(folder, "files", times, f"{FILES * times:,} files")


def size(folder: Path, times: int) -> list[Point]:
    """A store of few large objects."""
    fill(folder, LARGE_FILES, BYTES * times // LARGE_FILES)
    return store_points(folder, "bytes", times, f"{(BYTES * times) >> 20:,} MiB")[:1]


def fill(folder: Path, count: int, length: int) -> None:
    """Publish ``count`` objects of ``length`` bytes beside the results of one small stage."""
    kit(folder, "--cores", "1", "results/nano/source_word_problems/manifest.json")
    store = Store(folder / "store")
    made = folder / "made"
    made.mkdir()
    for number in range(count):
        path = made / str(number)
        with path.open("wb") as file:
            file.write(os.urandom(64))
            file.truncate(length)
        store.publish(path)
    shutil.rmtree(made)


def store_points(folder: Path, what: str, times: int, amount: str) -> list[Point]:
    """Rehash of the store, and what could be removed from it."""
    verify = instella(folder, "store", "verify", timeout=TIMEOUT_SECONDS)
    collect = instella(folder, "store", "gc", "--dry-run", "--spare", "0", timeout=TIMEOUT_SECONDS)
    return [point(f"{what}: store verify", times, amount, verify),
            point(f"{what}: store gc", times, amount, collect)]  # fmt: skip


def draw(points: list[Point]) -> None:
    """Write ``docs/growth.svg``."""
    rows = [[item.series, item.times, item.cpu, item.memory] for item in points]
    subprocess.run(
        [str(PLOTS), "-m", "benchmarks.growth_plot"],
        cwd=PROJECT, input=json.dumps(rows), text=True, check=True,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
