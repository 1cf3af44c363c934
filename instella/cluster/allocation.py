"""The SLURM job in which a stage runs: its nodes, its end, and the way back into the queue."""

import os
import re
import time
from dataclasses import dataclass
from typing import NoReturn

from instella.cluster.slurm import ask, call, seconds_of
from instella.errors import KitError, Stopped
from instella.progress import Reporter

JOB = "SLURM_JOB_ID"
# SLURM kills a requeued job within KillWait, 30 s by default.
KILL_SECONDS = 180.0


@dataclass(frozen=True)
class Allocation:
    """A running job.

    Attributes:
        job: its number.
        nodes: how many it has.
        end: moment at which its time is over, seconds since 1970; inf without a limit.
        start: when it started, as SLURM writes it; another one after each requeue.
    """

    job: str
    nodes: int
    end: float
    start: str = ""


def current() -> Allocation | None:
    """The job that this process is part of; None outside of SLURM.

    Raises:
        KitError: SLURM does not know the job, or does not answer.
    """
    job = os.environ.get(JOB)
    if job is None:
        return None
    now = time.time()
    words = ask("squeue", "--noheader", "--jobs", job, "--format", "%D|%L|%S").strip().split("|")
    if len(words) != 3 or not words[0].isdecimal():
        raise KitError(f"squeue does not know job {job}, in which this stage runs")
    left = seconds_of(words[1])
    return Allocation(job, int(words[0]), float("inf") if left is None else now + left, words[2])


def is_preempted(allocation: Allocation) -> bool:
    """Whether SLURM has told the job, since it last started, to make room for another.

    It then sends SIGTERM to what the job has started by srun, which ends whatever does not listen.
    """
    words = ("scontrol", "show", "job", "--oneliner", allocation.job)
    found = re.search(r"\bPreemptTime=([0-9T:-]+)", ask(*words))
    return found is not None and found[1] >= allocation.start


def queue_again(allocation: Allocation, report: Reporter, ended: KitError) -> NoReturn:
    """Put the job back into the queue, where the stage goes on from its checkpoint.

    The job keeps its number, so whoever waits for it waits on, and no attempt is used up. A
    job that is being ended for another reason (cancelled, out of time) stays ended.

    Args:
        allocation: the job of this process, which SLURM kills when that worked.
        report: told before.
        ended: what the stage ended with.

    Raises:
        Stopped: it is not put back; whoever started the job has to.
    """
    words = ("squeue", "--noheader", "--jobs", allocation.job, "--format", "%T|%S")
    try:
        state, _, start = ask(*words).strip().partition("|")
    except KitError as silent:
        raise Stopped(f"{ended}; job {allocation.job} is not requeued: {silent}") from silent
    if start != allocation.start:
        # The node was given up as lost, and this process has outlived that.
        raise Stopped(f"{ended}; job {allocation.job} has been started again without this process")
    if state != "RUNNING":
        raise Stopped(f"{ended}; job {allocation.job} is {state.lower()}, so it is not requeued")
    report.say(f"{ended}; job {allocation.job} goes back into the queue")
    code, _, fault = call(["scontrol", "requeue", allocation.job])
    if code:
        raise Stopped(f"{ended}; scontrol requeue {allocation.job} failed: {fault}")
    time.sleep(KILL_SECONDS)
    raise Stopped(f"{ended}; job {allocation.job} was requeued but not ended")
