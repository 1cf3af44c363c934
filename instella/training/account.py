"""The account of a training stage's time and memory, beside its artifact."""

import resource
import time
from pathlib import Path

import torch

from instella.artifacts.notes import SPEED, NoteLog


class Account:
    """One line a step: its wall time, tokens and tokens a second, and the peak of memory so far.

    Args:
        scratch: of the job.
        steps: steps that a resumed stage has done.
        ranks: processes that share the work; this is the first of them.
    """

    def __init__(self, scratch: Path, steps: int, ranks: int) -> None:
        self._log = NoteLog(scratch, SPEED, steps)
        self._ranks = ranks
        self._before = time.perf_counter()

    def step(self, step: int, tokens: int) -> None:
        """Note that a step is done, with all that belongs to it, checkpoints too.

        Args:
            step: from 1.
            tokens: of its global batch, as the step's line counts them.
        """
        now = time.perf_counter()
        seconds, self._before = now - self._before, now
        self._log.write(
            {
                "step": step,
                "seconds": seconds,
                "tokens": tokens,
                "tokens_per_second": tokens / seconds,
                "ranks": self._ranks,
                "peak_memory_bytes": peak_memory_bytes(),
            }
        )


def peak_memory_bytes() -> int:
    """What torch held at most on this rank's GPU; without one, this process's largest set of pages."""
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
