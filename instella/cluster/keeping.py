"""A stage that does not train, in a SLURM job whose time ends before the stage does.

A tokens stage keeps units in its scratch folder, and the next job goes on behind them, so its job
may go back into the queue. A stage that has kept nothing since it started would only begin again:
its time is left to end, and the next attempt books more.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from instella.artifacts.job import Job
from instella.cluster.allocation import Allocation, queue_again
from instella.errors import Stopped

POLL_SECONDS = 1.0


def in_jobs(
    function: Callable[[Job], None], allocation: Allocation, stop_seconds: int
) -> Callable[[Job], None]:
    """A stage's function whose job is queued again once it has kept a unit and its time is nearly over.

    Args:
        function: the stage's.
        allocation: the job.
        stop_seconds: before its end.
    """

    def run(job: Job) -> None:
        over = threading.Event()
        moment = allocation.end - stop_seconds
        what = (job, allocation, moment, kept(job.scratch), over)
        threading.Thread(target=_watch, args=what, daemon=True).start()
        try:
            function(job)
        finally:
            over.set()

    return run


def _watch(
    job: Job, allocation: Allocation, moment: float, before: set[str], over: threading.Event
) -> None:
    while not over.wait(POLL_SECONDS):
        if time.time() >= moment and not kept(job.scratch) <= before:
            try:
                queue_again(allocation, job.report, Stopped("the time of its job ends"))
            except Stopped as error:
                job.report.say(str(error))
                return


def kept(scratch: Path) -> set[str]:
    """Units that are finished, by the name of their last file."""
    return {path.name for path in (scratch / "units").glob("[0-9]*.json")}
