"""Runs tiny on the test cluster, by hand: its root, time and processor.

    .venv/bin/python tests/slurm/run_tiny.py [FOLDER]

It needs what ./kit test sets up, and stays in FOLDER, which must not exist; the status is 1 if
the root is not the recorded one.
"""

import sys
import tempfile
from pathlib import Path

from slurm_cluster import Cluster, missing
from slurm_helpers import OPTIONS, new_run

from instella.artifacts.journal import host_facts
from instella.prove.copies import PROJECT
from instella.prove.processes import kit
from instella.prove.recorded import read_recorded, recorded_file, root_of

LONGEST_SECONDS = 6 * 3600.0


def main() -> int:
    """Bring the cluster up, run, compare."""
    lacking = missing()
    if lacking is not None:
        sys.exit(f"{lacking} is not there: apt install slurm-wlm munge")
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as temporary:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary, "kit")
        run = new_run(folder, "tiny")
        cluster = Cluster(Path(temporary, "cluster"))
        try:
            cluster.start()
            words = (*OPTIONS, "--config", "ranks=2")
            done = kit(folder, *words, timeout=LONGEST_SECONDS, extra=cluster.environment)
        finally:
            cluster.stop()
        if done.code:
            sys.exit(done.err)
        recorded = root_of(read_recorded(recorded_file(PROJECT / "recipes" / "tiny.yaml")).contents)
        outcomes = [entry["outcome"] for lines in run.journal().values() for entry in lines]
        facts = host_facts()
        print(f"root     {run.root()}")
        print(f"recorded {recorded}")
        print(f"stages   {len(outcomes)}, of which computed {outcomes.count('computed')}")
        print(f"time     {done.wall / 60:.1f} min, CPU {done.cpu / 60:.1f} min without the jobs")
        print(f"machine  {facts['cpu']}, {facts['libc']}")
        return int(run.root() != recorded)


if __name__ == "__main__":
    sys.exit(main())
