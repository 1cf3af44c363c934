"""Jobs that an earlier Snakemake left in the queue, and how they are ended.

A Snakemake that was killed leaves its jobs, and the next one does not know them: it would
start a second job of the same stage. The store's lock would let only one of them work, where
the shared file system keeps locks between machines; ending the old ones first does not rest
on that. Nothing is lost, since a stage that trains keeps a checkpoint when it is cancelled.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from instella.cluster.slurm import ask
from instella.errors import KitError

# What the executor writes into the comment of each of its jobs.
MARKS = ("rule_", "group_")
END_SECONDS = 600.0
POLL_SECONDS = 1.0


def left_over(folder: Path) -> dict[str, str]:
    """Number to comment of this user's jobs that a Snakemake submitted from ``folder``."""
    words = ("squeue", "--noheader", "--user", str(os.getuid()), "--format", "%A|%k|%Z")
    found = {}
    for line in ask(*words).splitlines():
        job, comment, place = line.strip().split("|", 2)
        if comment.startswith(MARKS) and Path(place).resolve() == folder.resolve():
            found[job] = comment
    return found


def clear(folder: Path, say: Callable[[str], None]) -> None:
    """End what ``left_over`` finds, and wait until it is gone.

    Args:
        folder: where Snakemake works.
        say: gets one line for each job.

    Raises:
        KitError: a job is still there after ten minutes, or SLURM does not answer.
    """
    found = left_over(folder)
    for job, comment in found.items():
        say(f"job {job} ({comment}) is left from an earlier run; ended, it goes on in a new job")
    if found:
        ask("scancel", *found)
    deadline = time.monotonic() + END_SECONDS
    while found:
        if time.monotonic() > deadline:
            raise KitError(
                f"job {next(iter(found))} of an earlier run is still there {END_SECONDS:.0f} s "
                "after scancel: look at it with scontrol show job"
            )
        time.sleep(POLL_SECONDS)
        found = left_over(folder)
