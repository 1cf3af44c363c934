"""Compares a dry run of the shipped workflow with one of a workflow of one rule.

    .venv/bin/python -m benchmarks.dry_run [--pairs N]

Both read the same ``config.yaml``. CPU time is compared, in pairs one after the other, so
that other load on the machine meets both alike; the figure is the median ratio.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import record
from instella.prove.copies import clone
from instella.prove.processes import run

TARGET = 1.2
TIMEOUT_SECONDS = 120.0
EMPTY = """configfile: "config.yaml"


rule all:
    output:
        "nothing.txt",
    shell:
        "touch {output}"
"""


def main() -> int:
    """Measure and record; 1 when the median ratio is above the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory(prefix="dry-run-") as temporary:
        folder = clone(Path(temporary, "project"))
        (folder / "Empty.smk").write_text(EMPTY, encoding="utf-8")
        # The first dry run of each fills caches, as it does for a user.
        cpu_seconds(folder, "Snakefile")
        cpu_seconds(folder, "Empty.smk")
        measured = [
            (cpu_seconds(folder, "Snakefile"), cpu_seconds(folder, "Empty.smk"))
            for _ in range(pairs)
        ]
    ratio = statistics.median(full / empty for full, empty in measured)
    lines = [
        f"- pairs: {pairs}",
        f"- shipped workflow: {statistics.median(full for full, _ in measured):.2f} s of CPU time",
        f"- empty workflow: {statistics.median(empty for _, empty in measured):.2f} s of CPU time",
        f"- median ratio: {ratio:.3f} (target: at most {TARGET})",
    ]
    record("Dry run against an empty workflow", lines)
    return int(ratio > TARGET)


def cpu_seconds(folder: Path, snakefile: str) -> float:
    """CPU time of one dry run.

    Raises:
        RuntimeError: the dry run failed.
    """
    command = [sys.executable, "-m", "snakemake", "--snakefile", snakefile, "-n", "--cores", "1"]
    done = run(command, folder, TIMEOUT_SECONDS)
    if done.code:
        raise RuntimeError(f"{snakefile}: the dry run ended with {done.code}\n{done.err}")
    return done.cpu


if __name__ == "__main__":
    sys.exit(main())
