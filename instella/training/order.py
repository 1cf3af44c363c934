"""Which examples an update sees: a function of the seed and the step number alone.

A resume needs nothing but the step, also across the edge of an epoch.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from instella.errors import BadUse


@lru_cache(maxsize=2)
def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """Order of the examples of one epoch.

    The published training shuffles 0..count-1 with numpy's PCG64 seeded by
    ``seed + epoch`` (recipe facts D and I), so epoch 1 of seed 6198 is epoch 0 of 6199.

    Returns:
        uint32 [count], read-only.
    """
    if not 0 < count < 1 << 32:
        raise BadUse(f"{count} examples cannot be ordered: the order holds 1 to 2**32 - 1")
    order = np.arange(count, dtype=np.uint32)
    np.random.Generator(np.random.PCG64(seed + epoch)).shuffle(order)
    order.setflags(write=False)
    return order


@dataclass(frozen=True)
class Cursor:
    """Maps an update to its examples; the last partial batch of an epoch is dropped.

    Attributes:
        count: examples of one epoch.
        global_batch: examples of one update.
        seed: of the order.
        epochs: passes over the data.
        max_steps: at most so many updates.
    """

    count: int
    global_batch: int
    seed: int
    epochs: int = 1
    max_steps: int | None = None

    def __post_init__(self) -> None:
        if self.count < self.global_batch:
            raise BadUse(
                f"{self.count} examples do not fill one batch of {self.global_batch}: "
                "lower global_batch or give more data"
            )

    @property
    def steps_per_epoch(self) -> int:
        """Full batches of one epoch."""
        return self.count // self.global_batch

    @property
    def total_steps(self) -> int:
        """Updates of the whole run."""
        steps = self.steps_per_epoch * self.epochs
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def taken(self) -> np.ndarray:
        """Examples of all updates, each once, ascending, int64."""
        taken = np.zeros(self.count, dtype=bool)
        for first in range(0, self.total_steps, self.steps_per_epoch):
            steps = min(self.steps_per_epoch, self.total_steps - first)
            order = epoch_order(self.count, self.seed, first // self.steps_per_epoch)
            taken[order[: steps * self.global_batch]] = True
        return np.flatnonzero(taken)

    def stream(self, epoch: int) -> list[str | int]:
        """Key of the random numbers that ordered an epoch."""
        return ["order", "PCG64", self.seed + epoch]

    def at(self, step: int) -> tuple[int, np.ndarray]:
        """Epoch (from 0) and examples, uint32 [global_batch], of update ``step`` (from 0)."""
        epoch, place = divmod(step, self.steps_per_epoch)
        order = epoch_order(self.count, self.seed, epoch)
        start = place * self.global_batch
        return epoch, order[start : start + self.global_batch]
