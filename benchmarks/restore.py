"""Time to bring artifacts back from the store against ``cp`` of the same bytes.

    .venv/bin/python -m benchmarks.restore [--megabytes 1024] [--rounds 5]

Restoring is what a stage does whose result the store has: every object is rehashed, then shown
under its name, as a link or, with ``copy``, as a copy (as on another disk). ``cp -r`` copies the
same files and checks nothing. All files are in the page cache.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import record
from benchmarks.rehash import cpu_seconds, write_files
from instella.artifacts.manifest import Manifest
from instella.artifacts.store import Store

TARGET = 1.5
COPY = "cp"


def main() -> int:
    """Measure and record; 1 when restoring takes longer than the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="restore-") as temporary:
        folder = Path(temporary)
        (folder / "made").mkdir()
        source = write_files(folder / "made", args.megabytes << 20)
        store = Store(folder / "store")
        manifest = publish(store, source)
        plain = folder / "plain"
        store.copy(manifest, plain)
        ways: dict[str, Callable[[Path], None]] = {
            "restored by link": lambda target: restore(store, manifest, target, store.place),
            "restored by copy": lambda target: restore(store, manifest, target, store.copy),
            COPY: lambda target: copy(plain, target),
        }
        spent: dict[str, list[float]] = {name: [] for name in ways}
        clock: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(args.rounds):
            for name, way in ways.items():
                started, busy = time.monotonic(), cpu_seconds()
                way(folder / "target")
                clock[name].append(time.monotonic() - started)
                spent[name].append(cpu_seconds() - busy)
                shutil.rmtree(folder / "target")
    size = sum(entry.size for entry in manifest.files.values())
    cpu, wall = (
        {name: statistics.median(found) for name, found in measured.items()}
        for measured in (spent, clock)
    )
    lines = [f"- {len(manifest.files)} files, {size / 2**30:.2f} GiB, {args.rounds} rounds"]
    for name in ways:
        ratios = f"; against cp {cpu[name] / cpu[COPY]:.2f} and {wall[name] / wall[COPY]:.2f}"
        lines.append(
            f"- {name}: CPU time {cpu[name]:.2f} s, on the clock {wall[name]:.2f} s"
            f"{ratios if name != COPY else ''}"
        )
    lines.append(f"- target: a stage's result on the store's own disk, at most {TARGET} times cp")
    record("Restoring from the store", lines)
    return int(cpu["restored by link"] > TARGET * cpu[COPY])


def publish(store: Store, folder: Path) -> Manifest:
    """Move the files of a folder into the store."""
    paths = sorted(path for path in folder.iterdir())
    files = {path.name: store.publish(path) for path in paths}
    return Manifest("measured", "measured", "computed", {}, files)


def restore(
    store: Store, manifest: Manifest, target: Path, show: Callable[[Manifest, Path], None]
) -> None:
    """Rehash the objects, then show them in a new folder."""
    bad = store.examine_all(manifest.files.values())
    assert not bad, bad
    show(manifest, target)


def copy(source: Path, target: Path) -> None:
    """The same by ``cp``."""
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)


if __name__ == "__main__":
    sys.exit(main())
