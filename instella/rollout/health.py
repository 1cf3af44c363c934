"""Whether GRPO still learns: figures of each step beside the artifact, and when to give up.

The figures that decide stand in the artifact's own step lines, so a resumed stage gives up
where an uninterrupted one does. The others are logged beside the artifact.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from instella.errors import KitError
from instella.network.device import CPU
from instella.recipe import settings
from instella.training.reduction import ordered_sum

Line = Mapping[str, Any]


class Entropies:
    """Entropy, in nats, of the distributions that a head gives; the logits stay as they are.

    Attributes:
        table: float32 [B, N] of the last ``expect``, zero where the mask was false.
    """

    def __init__(self) -> None:
        self.expect(torch.zeros(0, 0, dtype=torch.bool))

    def expect(self, mask: Tensor) -> None:
        """The next pass is of rows [B, N]; wanted where the mask is true, since each costs."""
        self._mask, self._column = mask, 0
        self.table = torch.zeros(mask.shape)

    def note(self, module: torch.nn.Module, inputs: Any, logits: Tensor) -> None:
        """A hook of the head, which may run over parts of the columns, one after another.

        Where it runs over parts, the backward pass runs it again, and that is not noted.
        """
        if self._column == self._mask.shape[1]:
            return
        columns = slice(self._column, self._column + logits.shape[1])
        wanted = self._mask[:, columns]
        chosen = logits.detach()[wanted.to(logits.device)]
        logprobs = torch.log_softmax(chosen.float(), dim=-1)
        self.table[:, columns][wanted] = -(logprobs.exp() * logprobs).sum(dim=-1).to(CPU)
        self._column = columns.stop


@contextmanager
def heard_at(head: torch.nn.Module) -> Iterator[Entropies]:
    """Listens to a head."""
    found = Entropies()
    handle = head.register_forward_hook(found.note)
    try:
        yield found
    finally:
        handle.remove()


def rollout_figures(
    mask: Tensor, trained: Tensor, sampled: Tensor, entropy: Tensor, rewards: np.ndarray
) -> dict[str, float]:
    """Figures of one rollout, over the response tokens of all ranks.

    Args:
        mask: bool [R, W], true on response tokens.
        trained: float32 [R, W - 1], log-probabilities by the trainer, before its first update.
        sampled: the same by the sampler.
        entropy: the same shape, in nats.
        rewards: [groups, n].

    Returns:
        ``entropy``, a token mean; ``rollout_difference`` and ``rollout_difference_max``, mean and
        largest absolute difference of the two log-probabilities; ``reward_spread``, standard
        deviation of the rewards.
    """
    tokens = mask[:, 1:]
    apart = (trained - sampled)[tokens].abs()
    return {
        "entropy": ordered_sum(entropy[tokens]) / apart.numel(),
        "rollout_difference": ordered_sum(apart) / apart.numel(),
        "rollout_difference_max": float(apart.max()),
        "reward_spread": float(np.std(np.asarray(rewards, dtype=np.float64))),
    }


def check_health(lines: Sequence[Line], chosen: settings.Health, stage: str) -> None:
    """Give up where nothing is learned any more.

    Args:
        lines: all step lines so far, with ``step``, ``reward`` and ``no_signal``.
        chosen: when.
        stage: name for the message.

    Raises:
        KitError: no group had a signal for so many steps, or the reward has collapsed.
    """
    last = lines[-1]["step"]
    silent = chosen.silent_steps
    if silent is not None and len(lines) >= silent:
        tail = lines[-silent:]
        if all(line["no_signal"] == 1.0 for line in tail):
            raise KitError(
                f"{stage}: step {last}: for {silent} steps all answers of every group had the same "
                f"reward (mean {_mean(tail):.3g}), so nothing is learned: take other problems or a "
                "higher temperature, or set health.silent_steps"
            )
    if chosen.collapse is None or len(lines) < 2 * chosen.window:
        return
    # Windows side by side from the first step, and the newest steps against the best of them.
    size = chosen.window
    best = max(_mean(lines[end - size : end]) for end in range(size, len(lines) - size + 1, size))
    newest = _mean(lines[-size:])
    if newest < chosen.collapse * best:
        raise KitError(
            f"{stage}: step {last}: the mean reward of {size} steps fell to {newest:.3g} from "
            f"{best:.3g}: the policy has collapsed; lower the learning rate, raise kl_coefficient, "
            "or set health.collapse"
        )


def _mean(lines: Sequence[Line]) -> float:
    return math.fsum(line["reward"] for line in lines) / len(lines)
