"""Log-likelihoods of many continuations without padding, the same whatever shares a batch.

Tokens of all requests stand one after another in one row, and continuations of the same
context share its tokens: a *group*. Products and norms see one token at a time; attention
sees one group at a time. Logits are made only where a token is scored, and in the last layer
only those tokens attend.

In portable-x86 a request's bits are those of ``evaluation.likelihood`` for the same ids. A
product's output is one chain over its keys in their order, and a key that a query does not
see adds exactly nothing; a sum of exponentials goes over lanes of a vector, so a
continuation's tokens stand in its group where they would stand alone, modulo ``LANES``. A
chain is cut at ``CHUNK`` keys, so no group is longer; a request that is longer by itself is
computed by itself. Spare tokens at the end take what elementwise kernels compute by other code
(see ``evaluation.likelihood``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from instella.errors import BadUse, KitError
from instella.evaluation.packed_layout import Group, Ids, Layout, Queries, rounded
from instella.network.attention import attend
from instella.network.network import Attention, Instella, Layer
from instella.network.product import CHUNK, chain, chain_product
from instella.network.rope import rotate
from instella.numerics import PORTABLE
from instella.rollout.generate import LANES


@dataclass(frozen=True)
class Request:
    """Ids to score, given those before; neither is empty."""

    context: Ids
    continuation: Ids

    @property
    def length(self) -> int:
        """Tokens that the network reads: the last one is only predicted."""
        return len(self.context) + len(self.continuation) - 1


@dataclass(frozen=True)
class Likelihood:
    """Log-probability of each token of a continuation, float64, and whether each is likeliest."""

    logprobs: np.ndarray
    greedy: bool


@torch.no_grad()
def likelihoods(network: Instella, requests: Sequence[Request], per_batch: int) -> list[Likelihood]:
    """What the network gives each continuation; see the module's text.

    Args:
        network: the model, in evaluation.
        requests: of any lengths, each at most ``max_position_embeddings`` long.
        per_batch: requests computed at once; in portable-x86 never changes a bit.

    Raises:
        BadUse: a request that is empty or too long, or a network whose widths would let a
            vector span two tokens.
        KitError: logits that are not finite.
    """
    limit = network.settings.max_position_embeddings
    for request in requests:
        if not request.context or not request.continuation or request.length > limit:
            raise BadUse(
                f"a request of {len(request.context)} and {len(request.continuation)} tokens; "
                f"neither may be empty, and the network reads {limit}"
            )
    check_widths(network)
    # Neighbours in this order share contexts, and groups of a batch are about as long.
    order = sorted(
        range(len(requests)),
        key=lambda number: (len(requests[number].context), requests[number].context),
    )
    results: dict[int, Likelihood] = {}
    for first in range(0, len(order), per_batch):
        groups = _groups(requests, order[first : first + per_batch])
        results.update(_batch(network, requests, groups))
    return [results[number] for number in range(len(requests))]


def check_widths(network: Instella) -> None:
    """Refuse a network in portable-x86 whose rows share a vector; see ``rollout.generate``."""
    for name in ("hidden_size", "intermediate_size", "vocab_size"):
        if network.numerics == PORTABLE and getattr(network.settings, name) % LANES:
            raise BadUse(
                f"model.{name} {getattr(network.settings, name)} is no multiple of {LANES}: in "
                f"{PORTABLE} a score would depend on what shares its batch"
            )


def _groups(requests: Sequence[Request], numbers: Sequence[int]) -> list[Group]:
    groups: list[Group] = []
    for number in numbers:
        request = requests[number]
        last = groups[-1] if groups else None
        if (
            last is None
            or last.context != request.context
            # Attention sees all keys of a group: a short context is not worth it.
            or len(request.context) < len(request.continuation)
            or last.start_of_next() + len(request.continuation) - 1 > CHUNK
        ):
            last = Group(request.context)
            groups.append(last)
        last.add(number, request.continuation)
    return groups


def _batch(
    network: Instella, requests: Sequence[Request], groups: Sequence[Group]
) -> dict[int, Likelihood]:
    starts = np.cumsum([0, *(len(group.ids) for group in groups)]).tolist()
    scored: list[int] = []
    targets: list[int] = []
    sizes: list[int] = []
    numbers: list[int] = []
    for group, start in zip(groups, starts, strict=False):
        for number, own in zip(group.numbers, group.scored, strict=True):
            scored += [start + index for index in own]
            targets += requests[number].continuation
            sizes.append(len(own))
            numbers.append(number)
    # Continuations of one context begin at the same token.
    tokens, places = np.unique(scored, return_inverse=True)
    logits = network.lm_head(_states(network, groups, tokens)).float()
    logprobs = torch.log_softmax(logits, -1).numpy()[places, targets]
    if not np.isfinite(logprobs).all():
        raise KitError("evaluation: the network's logits are not finite: it has diverged")
    likeliest = logits.argmax(-1).numpy()[places] == targets
    ends = np.cumsum(sizes)[:-1]
    return {
        number: Likelihood(own, bool(hits.all()))
        for number, own, hits in zip(
            numbers, np.split(logprobs.astype(np.float64), ends), np.split(likeliest, ends),
            strict=True,
        )
    }  # fmt: skip


def _states(network: Instella, groups: Sequence[Group], tokens: np.ndarray) -> Tensor:
    """Final, normed states of some tokens [tokens, width], and behind them of spare ones.

    Args:
        network: the model.
        groups: their tokens stand one after another.
        tokens: int64, increasing.
    """
    model = network.model
    layout = Layout(groups)
    ids, positions = torch.zeros(2, layout.tokens, dtype=torch.int64)
    for column, values in ((ids, [group.ids for group in groups]),
                           (positions, [group.positions for group in groups])):  # fmt: skip
        flat = torch.tensor([value for own in values for value in own])
        column[: len(flat)] = flat
    x = model.embed_tokens(ids)
    # The table's rows by position; how many tokens there are together is no sequence's length.
    rope = model.rope(x[None, :1], positions)
    everyone, last = layout.everyone(), layout.only(tokens)
    for layer in model.layers:
        assert isinstance(layer, Layer)
        # Nothing reads the last layer's other states.
        asked = last if layer is model.layers[-1] else everyone
        normed = layer.pre_attention_layernorm(x)
        x = _chosen(x, asked) + _attention(layer.self_attn, normed, rope, layout, asked)
        x = x + layer.mlp(layer.pre_feedforward_layernorm(x))
    assert last.rows is not None
    wanted = np.full(rounded(len(tokens) + 1), len(x) - 1)
    wanted[: len(tokens)] = np.searchsorted(last.rows.numpy(), tokens)
    return model.norm(x[torch.from_numpy(wanted)])


def _chosen(x: Tensor, asked: Queries) -> Tensor:
    return x if asked.rows is None else x[asked.rows]


def _attention(
    attention: Attention, x: Tensor, rope: tuple[Tensor, Tensor], layout: Layout, asked: Queries
) -> Tensor:
    """What attention adds to the tokens that ask; ``x [tokens, width]`` are all of them."""
    heads = (attention.heads, x.shape[1] // attention.heads)
    asking = _chosen(x, asked)
    query = attention.q_norm(attention.q_proj(asking)).view(-1, *heads)
    query = rotate(query, *(_chosen(part, asked) for part in rope))
    key = rotate(attention.k_norm(attention.k_proj(x)).view(-1, *heads), *rope)
    value = attention.v_proj(x).view(-1, *heads)
    out = torch.zeros_like(query)
    for own, asks in asked.long:
        q, k, v = (part.transpose(0, 1)[None] for part in (query[asks], key[own], value[own]))
        out[asks] = attend(q, k, v, None, attention.numerics)[0].transpose(0, 1)
    if len(layout.keys):
        q = query[asked.tokens].transpose(1, 2)
        k, v = (part[layout.keys].transpose(1, 2) for part in (key, value))
        token, group, slot = asked.slots
        mixed = _attend(q, k, v, asked.unseen[:, None], attention.numerics)
        out[token] = mixed.transpose(1, 2)[group, slot]
    return attention.o_proj(out.view(asking.shape))


def _attend(query: Tensor, key: Tensor, value: Tensor, unseen: Tensor, numerics: str) -> Tensor:
    """Attention of [groups, heads, most, d] to [groups, heads, width, d]; see ``Queries``."""
    if numerics != PORTABLE:
        return attend(query, key, value, unseen == 0, numerics)
    product = chain if query.shape[3] <= CHUNK else chain_product
    queries, keys, values = (
        part.reshape(-1, *part.shape[2:])
        for part in (query * (1.0 / math.sqrt(query.shape[3])), key, value)
    )
    scores = torch.stack([product(q, k) for q, k in zip(queries, keys, strict=True)])
    shares = torch.softmax(scores.view(*query.shape[:3], -1).add_(unseen), -1)
    shares = shares.view(len(queries), *shares.shape[2:])
    mixed = [product(p, v.t()) for p, v in zip(shares, values, strict=True)]
    return torch.stack(mixed).view(query.shape)
