"""Batched sampling with a key-value cache.

Every prompt is padded on the left to one length. In numerics class portable-x86 every token
attends to a cache of one length, so that every shape but the number of rows is a constant of
the stage, and no operation of a row looks at another row (widths that are multiples of 16
assumed, so that no vector of eight lanes spans two rows): a response has the same bits
whichever prompts share its batch, in any order and for any ``rows_per_batch``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from instella.errors import BadUse
from instella.network.device import CPU
from instella.numerics import PORTABLE
from instella.rollout.cache import RowCache
from instella.rollout.sample import choose
from instella.rollout.streams import uniforms

Parts = Sequence[str | int]

# The widest vector of float32 times the two that ATen unrolls: see the module's text.
LANES = 16


@dataclass(frozen=True)
class Response:
    """One sampled answer.

    Attributes:
        ids: tokens, with the end of text if it was reached.
        logprobs: float32 [tokens], log-probabilities under the plain softmax of the
            network that sampled (``rollout.sample.choose``). GRPO takes its old
            log-probabilities from a training forward instead, as verl does, so that the
            first ratio is exactly 1; these show how far sampling and training drift.
        finished: False when it was cut at the length limit.
    """

    ids: tuple[int, ...]
    logprobs: np.ndarray
    finished: bool


@dataclass(frozen=True)
class _Sampling:
    samples: int
    max_new_tokens: int
    temperature: float
    top_p: float
    eos_id: int
    vocabulary: int
    max_prompt_tokens: int
    rows_per_batch: int


def generate(
    network: Any,
    prompts: Sequence[Sequence[int]],
    *,
    samples: int,
    max_new_tokens: int,
    temperature: float,
    top_p: float,
    eos_id: int,
    vocabulary: int,
    max_prompt_tokens: int,
    stream: Sequence[Parts],
    rows_per_batch: int = 256,
) -> list[list[Response]]:
    """Sample responses to each prompt.

    Args:
        network: ``instella.network.Instella``.
        prompts: token ids of each, 1 to ``max_prompt_tokens``.
        samples: responses of each prompt.
        max_new_tokens: longest response, end of text included.
        temperature: 0 is greedy.
        top_p: nucleus; 1 samples from all.
        eos_id: ends a response.
        vocabulary: ids from here on are never sampled; they pad the embedding.
        max_prompt_tokens: every prompt is padded to it. A constant of the stage: the
            last bits of a response depend on it, and its time does too.
        stream: for each prompt the parts that name its random numbers, such as purpose,
            seed, step and key; the number of the sample is added.
        rows_per_batch: responses sampled at once, at most; never changes them.

    Returns:
        for each prompt its responses, in the order of the samples.

    Raises:
        BadUse: a prompt that is empty or too long, a network too short for prompt and
            response, or settings out of range.
        KitError: logits that are not numbers.
    """
    sampling = _Sampling(
        samples, max_new_tokens, temperature, top_p, eos_id, vocabulary, max_prompt_tokens,
        rows_per_batch,
    )  # fmt: skip
    _check(network, prompts, stream, sampling)
    rows = [(prompt, sample) for prompt in range(len(prompts)) for sample in range(samples)]
    responses: list[Response] = []
    # Not inference mode: tables that the network keeps would be of no use to training.
    with torch.no_grad():
        for start in range(0, len(rows), rows_per_batch):
            batch = rows[start : start + rows_per_batch]
            numbers = [
                uniforms([*stream[prompt], sample], max_new_tokens) for prompt, sample in batch
            ]
            owners = [prompt for prompt, _ in batch]
            responses += _batch(
                network, prompts, owners, torch.from_numpy(np.stack(numbers)), sampling
            )
    return [responses[start : start + samples] for start in range(0, len(responses), samples)]


def _check(
    network: Any, prompts: Sequence[Sequence[int]], stream: Sequence[Parts], sampling: _Sampling
) -> None:
    if len(stream) != len(prompts):
        raise BadUse(f"{len(prompts)} prompts but {len(stream)} streams: give one a prompt")
    if min(sampling.samples, sampling.max_new_tokens, sampling.rows_per_batch) < 1:
        raise BadUse("samples, max_new_tokens and rows_per_batch must be at least 1")
    if sampling.temperature < 0 or not 0 < sampling.top_p <= 1:
        raise BadUse(
            f"temperature {sampling.temperature}, top_p {sampling.top_p}: the first must not be "
            "negative, the second be above 0 and at most 1"
        )
    settings = network.settings
    if not 0 < sampling.vocabulary <= settings.vocab_size:
        raise BadUse(
            f"vocabulary {sampling.vocabulary} does not fit the network's {settings.vocab_size} "
            "rows: use the tokenizer the network was trained with"
        )
    _check_lengths(prompts, sampling, settings.max_position_embeddings)
    for name in ("hidden_size", "intermediate_size"):
        if network.numerics == PORTABLE and getattr(settings, name) % LANES:
            raise BadUse(
                f"model.{name} {getattr(settings, name)} is no multiple of {LANES}: in {PORTABLE} "
                "a response would depend on the rows it shares a batch with"
            )


def _check_lengths(prompts: Sequence[Sequence[int]], sampling: _Sampling, limit: int) -> None:
    width, new = sampling.max_prompt_tokens, sampling.max_new_tokens
    if width > limit:
        raise BadUse(f"max_prompt_tokens {width} passes max_position_embeddings {limit}")
    for number, prompt in enumerate(prompts):
        if not 0 < len(prompt) <= width:
            raise BadUse(
                f"prompt {number}: {len(prompt)} tokens; 1 to {width} (max_prompt_tokens) may be"
            )
        if len(prompt) + new > limit:
            raise BadUse(
                f"prompt {number}: its {len(prompt)} tokens and {new} new ones pass "
                f"max_position_embeddings {limit}: lower max_new_tokens"
            )


@dataclass
class _Rows:
    """The rows still being written; ``places`` are their numbers in the batch."""

    cache: RowCache
    places: Tensor
    starts: Tensor
    mask: Tensor
    uniforms: Tensor

    def keep(self, rows: Tensor) -> None:
        self.cache.select(rows)
        self.places = self.places[rows]
        self.starts = self.starts[rows]
        self.mask = self.mask[rows]
        self.uniforms = self.uniforms[rows]


def _batch(
    network: Any,
    prompts: Sequence[Sequence[int]],
    owners: list[int],
    numbers: Tensor,
    sampling: _Sampling,
) -> list[Response]:
    """One response for each of ``owners``, with ``numbers`` float64 [rows, max_new_tokens]."""
    used = sorted(set(owners))
    place = {prompt: row for row, prompt in enumerate(used)}
    of_row = torch.tensor([place[prompt] for prompt in owners])
    logits, cache, starts = _prefill(network, [prompts[prompt] for prompt in used], sampling)
    cache.select(of_row)
    starts = starts[of_row]
    columns = torch.arange(cache.length)
    mask = (columns >= starts[:, None]) & (columns < sampling.max_prompt_tokens)
    rows = _Rows(cache, torch.arange(len(owners)), starts, mask, numbers)
    return _decode(network, logits[of_row], rows, sampling)


def _prefill(
    network: Any, prompts: list[Sequence[int]], sampling: _Sampling
) -> tuple[Tensor, RowCache, Tensor]:
    """Logits after each prompt [P, V], the filled cache, and the first column of each."""
    width = sampling.max_prompt_tokens
    ids = torch.full((len(prompts), width), sampling.eos_id)
    starts = torch.tensor([width - len(prompt) for prompt in prompts])
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
    columns = torch.arange(width)
    positions = (columns - starts[:, None]).clamp(min=0)
    causal = columns <= columns[:, None]
    # Padding sees itself, so that no query sees nothing, which would be NaN.
    visible = (causal & (columns >= starts[:, None, None])) | torch.eye(width, dtype=torch.bool)
    cache = RowCache(width + sampling.max_new_tokens, whole=network.numerics == PORTABLE)
    states = network.hidden(ids, positions, visible[:, None], cache)
    cache.advance(width)
    return network.lm_head(states[:, -1]).to(CPU), cache, starts


def _decode(network: Any, logits: Tensor, rows: _Rows, sampling: _Sampling) -> list[Response]:
    total, length = rows.places.shape[0], sampling.max_new_tokens
    ids = torch.zeros(total, length, dtype=torch.int64)
    logprobs = torch.zeros(total, length)
    lengths = torch.full((total,), length)
    finished = torch.zeros(total, dtype=torch.bool)
    for step in range(length):
        chosen, scores = choose(
            logits,
            rows.uniforms[:, step],
            sampling.temperature,
            sampling.top_p,
            sampling.vocabulary,
        )
        open_rows = ~finished[rows.places]
        ids[rows.places[open_rows], step] = chosen[open_rows]
        logprobs[rows.places[open_rows], step] = scores[open_rows]
        ended = rows.places[open_rows & (chosen == sampling.eos_id)]
        finished[ended] = True
        lengths[ended] = step + 1
        left = (~finished[rows.places]).nonzero()[:, 0]
        if step + 1 == length or left.numel() == 0:
            break
        if 2 * left.numel() <= rows.places.numel():
            rows.keep(left)
            chosen = chosen[left]
        logits = _forward(network, chosen, rows)
    return [
        Response(
            tuple(ids[row, :size].tolist()),
            logprobs[row, :size].numpy().copy(),
            bool(finished[row]),
        )
        for row, size in enumerate(lengths.tolist())
    ]


def _forward(network: Any, chosen: Tensor, rows: _Rows) -> Tensor:
    column = rows.cache.used
    rows.mask[:, column] = True
    positions = (column - rows.starts)[:, None]
    mask = rows.mask if network.numerics == PORTABLE else rows.mask[:, : column + 1]
    states = network.hidden(chosen[:, None], positions, mask[:, None, None], rows.cache)
    rows.cache.advance(1)
    return network.lm_head(states[:, -1]).to(CPU)
