"""Questions to SLURM's commands, each with a bound on the wait for an answer."""

import os
import subprocess
from collections.abc import Sequence

from instella.errors import KitError

ANSWER_SECONDS = 60.0
# With these a user changes what SLURM's commands list and how they print it.
STEERING = ("SQUEUE_", "SINFO_", "SCONTROL_", "SCANCEL_", "SLURM_TIME_FORMAT", "LC_", "LANG")


def ask(*words: str) -> str:
    """What a command of SLURM prints.

    Raises:
        KitError: it is not there, fails, or does not answer in a minute.
    """
    code, out, err = call(words)
    if code:
        raise KitError(f"{words[0]} ended with status {code}: {err or 'no message'}")
    return out


def call(words: Sequence[str]) -> tuple[int, str, str]:
    """Exit status of a command, and what it printed, in one line where it is an error."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=ANSWER_SECONDS, env=_environment()
        )
    except FileNotFoundError:
        raise KitError(
            f"{words[0]} is not there: this is no machine of a SLURM cluster, or PATH lacks it"
        ) from None
    except subprocess.TimeoutExpired:
        raise KitError(
            f"{words[0]} gave no answer in {ANSWER_SECONDS:.0f} s: ask whether slurmctld runs"
        ) from None
    return done.returncode, done.stdout, " ".join(done.stderr.split())


def _environment() -> dict[str, str]:
    """The caller's, without what changes the form of an answer."""
    return {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}


def seconds_of(text: str) -> float | None:
    """Seconds of a span as SLURM prints it: ``[days-][[hours:]minutes:]seconds``.

    None for UNLIMITED, INVALID and the like.
    """
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in parts) or (days and not days.isdecimal()):
        return None
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    return float(int(days or 0) * 86400 + total)
