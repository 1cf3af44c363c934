"""Measures one run of the default recipe from an empty store: time, memory and root.

    .venv/bin/python -m benchmarks.tiny_run [--cores N] [--keep FOLDER]

Archives already in ``downloads/`` are used; what is missing is fetched and counts.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import busy_seconds, record
from instella.prove.copies import clone
from instella.prove.finished import read_journal
from instella.prove.processes import instella, kit

TIMEOUT_SECONDS = 3600.0
SHOWN_STAGES = 20
TARGET = 0.2


def main() -> int:
    """Run, then append a section to ``benchmarks/results.md``; not 0 when above the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keep", type=Path, help="run in this new folder and leave it there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tiny-run-") as temporary:
        return measure(args.keep or Path(temporary, "project"), args.cores)


def measure(folder: Path, cores: int) -> int:
    """Run the default recipe in a clone at ``folder`` and record what it took."""
    clone(folder)
    done = kit(folder, "--cores", str(cores), timeout=TIMEOUT_SECONDS)
    if done.code:
        print(done.err, file=sys.stderr)
        return done.code
    journal = read_journal(folder / "results" / "tiny")
    seconds = {name: sum(item["seconds"] for item in items) for name, items in journal.items()}
    slowest = sorted(seconds, key=lambda name: -seconds[name])[:SHOWN_STAGES]
    outside = done.wall - busy_seconds(journal)
    lines = [
        f"- cores given: {cores}",
        f"- wall time: {done.wall:.0f} s",
        f"- CPU time: {done.cpu:.0f} s",
        f"- stages, summed: {sum(seconds.values()):.0f} s in {len(seconds)} stages",
        f"- wall time outside stages: {outside:.0f} s, {outside / done.wall:.1%} of the run "
        f"(target: at most {TARGET:.0%})",
        f"- peak memory of all processes together: {done.peak_tree / 2**20:.0f} MiB",
        f"- peak memory of the largest process: {done.peak_process / 2**20:.0f} MiB",
        f"- root: `{instella(folder, 'root').out.strip()}`",
        "",
        "| stage | s |",
        "|---|---|",
        *(f"| {name} | {seconds[name]:.1f} |" for name in slowest),
    ]
    record("The default recipe from an empty store", lines)
    return int(outside > TARGET * done.wall)


if __name__ == "__main__":
    sys.exit(main())
