"""Jobs that would let a run wait for ever, found while Snakemake waits for them.

SLURM keeps a job in its queue that can never start, and Snakemake asks for ever for one that
SLURM has forgotten or has ended in a way Snakemake takes for a pause. Each such wait has a bound
here, after which the job is cancelled, which Snakemake counts as a failed attempt, or the run
ends. Work that is done is not lost: results are in the store, checkpoints beside them.
"""

import os
import re
import time
from collections.abc import Callable, Iterable

from instella.cluster.site import Site
from instella.cluster.slurm import ask
from instella.errors import KitError

POLL_SECONDS = 20.0
# SLURM may show a reason for a moment only.
UNFIT_SECONDS = 60.0
HELD_SECONDS = 20.0
# The executor asks every three minutes at the latest.
GONE_SECONDS = 900.0
SILENT_SECONDS = 3600.0
RELEASES = 3

AT_WORK = ("RUNNING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "RESIZING")
QUEUED = ("PENDING", "SUSPENDED")
# Reasons of squeue that only another booking, or an administrator, ends.
UNFIT_REASON = re.compile(
    r"PartitionTimeLimit|BadConstraints|DependencyNeverSatisfied|Invalid(Account|QOS)"
    r"|\w+MaxWall\w+|\w+PerJob(Limit)?|\w+NotAllowed"
)
# What SLURM does after a node was lost and came back too soon.
HELD_REASON = re.compile(r".*requeued.*held.*", re.IGNORECASE)

UNFIT, HELD, WAITING, GONE = "unfit", "held", "waiting", "gone"


def kind_of(state: str | None, reason: str) -> str | None:
    """What a job waits for; None while it works.

    Args:
        state: as squeue prints it; None for a job that squeue does not list.
        reason: why it is in that state.
    """
    if state in AT_WORK:
        return None
    if state not in QUEUED:
        return GONE
    if HELD_REASON.fullmatch(reason):
        return HELD
    return UNFIT if UNFIT_REASON.fullmatch(reason) else WAITING


class Watch:
    """Looks after the jobs for which Snakemake waits.

    Args:
        active: numbers of these jobs.
        site: bound of the wait in the queue.
        say: gets one line for each thing done.
        give_up: ends the run, with the line that says why.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        active: Callable[[], Iterable[str]],
        site: Site,
        say: Callable[[str], None],
        give_up: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._active = active
        self._say = say
        self._give_up = give_up
        self._clock = clock
        self._answered = clock()
        self._bounds = {
            UNFIT: UNFIT_SECONDS,
            HELD: HELD_SECONDS,
            WAITING: 60.0 * site.queue_minutes,
            GONE: GONE_SECONDS,
        }
        # Job to what it waits for, and since when.
        self._waits: dict[str, tuple[str, float]] = {}
        self._releases: dict[str, int] = {}

    def stay(self) -> None:
        """Look for ever; in a thread that ends with the process."""
        while True:
            time.sleep(POLL_SECONDS)
            try:
                self.look()
            except KitError as silent:
                quiet = self._clock() - self._answered
                if quiet > SILENT_SECONDS:
                    self._answered = self._clock()
                    self._give_up(f"{silent}; no answer for {quiet / 60:.0f} min, so this run ends")

    def look(self) -> None:
        """Ask once for all jobs, and act on those that have waited too long.

        Raises:
            KitError: SLURM does not answer.
        """
        # A task of an array is called after its job.
        active = {job.partition("_")[0] for job in self._active()}
        words = ("squeue", "--noheader", "--states", "all", "--user", str(os.getuid()))
        lines = ask(*words, "--format", "%A|%T|%r").splitlines()
        now = self._answered = self._clock()
        states = {line.split("|")[0]: line.strip().split("|", 2)[1:] for line in lines}
        waits = {}
        for job in sorted(active):
            state, reason = states.get(job, (None, ""))
            kind = kind_of(state, reason)
            if kind is None:
                continue
            before, since = self._waits.get(job, (kind, now))
            waits[job] = (kind, since if before == kind else now)
        self._waits = waits
        for job, (kind, since) in list(waits.items()):
            if now - since >= self._bounds[kind]:
                state, reason = states.get(job, ("forgotten", ""))
                self._act(job, kind, f"job {job} is {state.lower()}", reason, (now - since) / 60)

    def _act(self, job: str, kind: str, what: str, reason: str, minutes: float) -> None:
        self._waits.pop(job)
        releases = self._releases.get(job, 0)
        if kind == GONE:
            self._give_up(
                f"{what} for {minutes:.0f} min, and Snakemake waits for it: this run ends; start "
                "it again, and it goes on from what is there"
            )
        elif kind == HELD and releases < RELEASES:
            self._releases[job] = releases + 1
            self._say(f"{what} ({reason}): released")
            ask("scontrol", "release", job)
        else:
            cure = (
                "raise queue_minutes in the site file"
                if kind == WAITING
                else "see scontrol show job"
            )
            self._say(f"{what} for {minutes:.0f} min ({reason}): cancelled; {cure}")
            ask("scancel", job)
