"""Responses as rows that training reads: prompt, response, padding, and their scores.

The work is shared by all ranks and put together again, so every rank holds all rows, the
same for any number of ranks. In portable-x86 a row's bits depend on no other row of its
batch (``generate`` checks what that needs), so there each rank samples its share at once.
In the other classes the size of a batch may change last bits; there the ranks share batches
whose rows are a constant of the stage. Scoring shares micro-batches, constants too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from instella.canonical import read_jsonl
from instella.data.tokenizer import Encoder
from instella.errors import VerificationError
from instella.numerics import PORTABLE
from instella.recipe import settings
from instella.recipe.settings import LOGITS_AT_ONCE
from instella.rollout.generate import Parts, generate
from instella.rollout.health import Entropies
from instella.training.projection import needed_columns, network_logprobs
from instella.training.reduction import Group

# Rows of a batch whose size must not depend on the ranks, if a prompt has no more samples:
# few enough that several ranks have work. In batches of 64 instead of 192 rows sampling
# took a third more CPU time on the network of the tiny recipe.
ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class Prompt:
    """One line of ``prompts.jsonl``."""

    key: str
    ids: tuple[int, ...]
    answer: str


def read_prompts(path: Path, vocab_size: int) -> list[Prompt]:
    """All prompts of a file.

    Raises:
        VerificationError: a line without key, ids or answer, or an id the network lacks.
    """
    prompts = []
    for number, line in enumerate(read_jsonl(path), 1):
        try:
            prompt = Prompt(str(line["key"]), tuple(map(int, line["ids"])), str(line["answer"]))
        except (KeyError, TypeError, ValueError) as error:
            raise VerificationError(
                f"{path}: line {number}: expected key, ids and answer: {error!r}"
            ) from None
        if not prompt.ids or not 0 <= min(prompt.ids) <= max(prompt.ids) < vocab_size:
            raise VerificationError(
                f"{path}: line {number}: ids are empty or not below the network's vocab_size "
                f"{vocab_size}: the prompts were made for another model"
            )
        prompts.append(prompt)
    return prompts


@dataclass(frozen=True)
class Episodes:
    """The responses of one step, those of a prompt beside each other.

    Shapes: R rows (prompts times samples), W columns (longest prompt and longest
    response), whatever the responses are.

    Attributes:
        ids: int64 [R, W].
        mask: bool [R, W], true on response tokens, the end of text included.
        finished: bool [R], false when cut at the length limit.
        logprobs: float32 [R, W - 1], of the response's tokens as they were sampled; else 0.
    """

    ids: Tensor
    mask: Tensor
    finished: Tensor
    logprobs: Tensor

    @property
    def lengths(self) -> Tensor:
        """Response tokens of each row, int64 [R]."""
        return self.mask.sum(dim=1)

    def texts(self, encoder: Encoder) -> list[str]:
        """Each response as text, without its end of text."""
        rows = zip(self.ids, self.mask, self.finished.tolist(), strict=True)
        return [
            encoder.decode(ids[mask].tolist()[: -1 if finished else None])
            for ids, mask, finished in rows
        ]


def sample_episodes(
    group: Group,
    network: Any,
    prompts: Sequence[Prompt],
    chosen: settings.Policy,
    encoder: Encoder,
    purpose: Parts,
) -> Episodes:
    """Sample ``samples_per_prompt`` responses of each prompt.

    Args:
        group: each rank samples its share of the batches.
        network: samples; its mode and weights stay as they are.
        prompts: of one step.
        chosen: lengths, group size, temperature and nucleus.
        encoder: end of text, padding and the ids that may be sampled.
        purpose: name of the step's random numbers; a prompt's key is added.
    """
    units = _units(len(prompts), chosen.samples_per_prompt, group.ranks, network.numerics)
    block = [units[unit] for unit in _share(group, len(units))]
    groups = [
        responses
        for unit in block
        for responses in generate(
            network,
            [prompts[number].ids for number in unit],
            samples=chosen.samples_per_prompt,
            max_new_tokens=chosen.max_response_tokens,
            temperature=chosen.temperature,
            top_p=chosen.top_p,
            eos_id=encoder.eos_id,
            vocabulary=encoder.vocab_size,
            max_prompt_tokens=chosen.data.max_prompt_tokens,
            stream=[[*purpose, prompts[number].key] for number in unit],
        )
    ]
    rows = len(prompts) * chosen.samples_per_prompt
    width = chosen.data.max_prompt_tokens + chosen.max_response_tokens
    ids, mask = torch.zeros(rows, width, dtype=torch.int64), torch.zeros(rows, width)
    finished, logprobs = torch.zeros(rows), torch.zeros(rows, width - 1)
    for number, responses in zip(chain.from_iterable(block), groups, strict=True):
        prompt = prompts[number].ids
        for sample, response in enumerate(responses):
            row = number * chosen.samples_per_prompt + sample
            whole = torch.tensor([*prompt, *response.ids])
            ids[row] = encoder.pad_id
            ids[row, : len(whole)] = whole
            mask[row, len(prompt) : len(whole)] = 1
            finished[row] = float(response.finished)
            scores = slice(len(prompt) - 1, len(whole) - 1)
            logprobs[row, scores] = torch.from_numpy(response.logprobs)
    # Every row is zero on all ranks but one, so the sum puts them together exactly.
    group.add_roots_([ids, mask, finished, logprobs], group.ranks)
    return Episodes(ids, mask.bool(), finished.bool(), logprobs)


def _units(prompts: int, samples: int, ranks: int, numerics: str) -> list[range]:
    """Numbers of the prompts that are sampled together; see the module's text."""
    at_once = -(-prompts // ranks) if numerics == PORTABLE else max(1, ROWS_AT_ONCE // samples)
    return [range(start, min(start + at_once, prompts)) for start in range(0, prompts, at_once)]


def _share(group: Group, units: int) -> list[int]:
    """Numbers of the units of this rank; as even as whole units can be."""
    return np.array_split(np.arange(units), group.ranks)[group.rank].tolist()


class Scoring:
    """Passes over micro-batches, and tables of what they said of each token.

    The pass is that of training, so a network scores what it has not been moved from exactly as
    its first update does: the rows of a first update are scored by the update itself.

    Args:
        episodes: R rows, W columns.
        heard: listens to the network's head; None where no entropies are wanted.
        at_once: as of ``network_logprobs``.
    """

    def __init__(
        self,
        episodes: Episodes,
        heard: Entropies | None = None,
        at_once: int = LOGITS_AT_ONCE,
    ) -> None:
        self._episodes, self._heard, self._at_once = episodes, heard, at_once
        shape = (episodes.ids.shape[0], episodes.ids.shape[1] - 1)
        self._tables = [torch.zeros(shape) for _ in range(1 if heard is None else 2)]

    def score(self, network: Any, rows: np.ndarray) -> Tensor:
        """Log-probabilities of all tokens of a micro-batch, float32 [rows, columns]."""
        columns = needed_columns(self._episodes.mask[rows].numpy())
        if self._heard is not None:
            self._heard.expect(self._episodes.mask[rows, 1:columns])
        logprobs = network_logprobs(network, self._episodes.ids[rows, :columns], self._at_once)
        self._tables[0][rows, : columns - 1] = logprobs.detach()
        if self._heard is not None:
            self._tables[1][rows, : columns - 1] = self._heard.table
        return logprobs

    def together(self, group: Group) -> list[Tensor]:
        """What the ranks scored, each row once: tables float32 [R, W - 1].

        Log-probabilities, zero right of what a micro-batch computes; then entropies in nats,
        zero but for the response's tokens.
        """
        group.add_roots_(self._tables, group.ranks)
        return [without_sign(table) for table in self._tables]


def without_sign(scores: Tensor) -> Tensor:
    """Zeros without their sign, which a sum over ranks takes and a single rank would keep."""
    return scores + 0.0


def score_share(group: Group, network: Any, scoring: Scoring, parts: Sequence[np.ndarray]) -> None:
    """Score this rank's share of micro-batches without gradients."""
    with torch.no_grad():
        for number in _share(group, len(parts)):
            scoring.score(network, parts[number])


def episode_logprobs(
    group: Group,
    network: Any,
    episodes: Episodes,
    parts: Sequence[np.ndarray],
    at_once: int = LOGITS_AT_ONCE,
) -> Tensor:
    """Log-probabilities of all rows under a network that is not trained, as of ``Scoring``."""
    scoring = Scoring(episodes, at_once=at_once)
    score_share(group, network, scoring, parts)
    return scoring.together(group)[0]
