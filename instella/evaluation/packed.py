"""Log-likelihoods of many continuations without padding, the same whatever shares a batch.

Tokens of all requests stand one after another in one row, and continuations of the same
context share its tokens: a *group*. Products and norms see one token at a time; attention
sees one group at a time. Logits are made only where a token is scored.

In portable-x86 a request's bits are those of ``evaluation.likelihood`` for the same ids. A
product's output is one chain over its keys in their order, and a key that a query does not
see adds exactly nothing; a sum of exponentials goes over lanes of a vector, so a
continuation's tokens stand in its group where they would stand alone, modulo ``LANES``. A
chain is cut at ``CHUNK`` keys, so no group is longer; a request that is longer by itself is
computed by itself. The spare token at the end takes what elementwise kernels compute by
other code (see ``evaluation.likelihood``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from instella.errors import BadUse, KitError
from instella.network.attention import attend
from instella.network.network import Attention, Instella, Layer
from instella.network.product import CHUNK, PORTABLE, chain_product
from instella.network.rope import rotate
from instella.rollout.generate import LANES

Ids = tuple[int, ...]


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


@dataclass
class _Group:
    """A context and what follows it.

    Attributes:
        numbers: of the requests.
        places: for each token, in order, where it stands in the layout of attention.
        positions: for each token, its place in its own sequence.
        ids: of the tokens.
        branch: for each token, which continuation it belongs to; -1 for the context.
        scored: for each request, the tokens whose logits predict its continuation.
    """

    context: Ids
    numbers: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    branch: list[int] = field(default_factory=list)
    scored: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._append(self.context, 0, 0, -1)

    def start_of_next(self) -> int:
        """Where the next continuation begins: as after the context, modulo LANES."""
        size = len(self.context)
        return size + -(-(self.places[-1] + 1 - size) // LANES) * LANES

    def add(self, number: int, continuation: Ids) -> None:
        """Put a request behind the context."""
        size, first = len(self.context), len(self.ids)
        fed = continuation[:-1]
        self._append(fed, self.start_of_next(), size, len(self.numbers))
        self.numbers.append(number)
        self.scored.append([size - 1, *range(first, first + len(fed))])

    def _append(self, ids: Ids, place: int, position: int, branch: int) -> None:
        self.ids += ids
        self.places += range(place, place + len(ids))
        self.positions += range(position, position + len(ids))
        self.branch += [branch] * len(ids)

    @property
    def width(self) -> int:
        """Places of its layout."""
        return self.places[-1] + 1


@dataclass(frozen=True)
class _Layout:
    """Where attention finds the tokens of a batch.

    Attributes:
        tokens: int64 [groups, width], the token at each place; the spare one where none is.
        mask: bool [groups, 1, width, width], True where a query sees a key. A place without
            a token sees itself, so that no row of scores is empty.
        placed: int64 [tokens] each: token, its group and its place.
        long: groups of one request that no chain takes, each as its tokens.
    """

    tokens: Tensor
    mask: Tensor
    placed: tuple[Tensor, Tensor, Tensor]
    long: list[slice]


def _layout(groups: Sequence[_Group], starts: Sequence[int], spare: int) -> _Layout:
    short = [(group, start) for group, start in zip(groups, starts, strict=False)
             if group.width <= CHUNK]  # fmt: skip
    width = max((group.width for group, _ in short), default=1)
    token = [start + n for group, start in short for n in range(len(group.ids))]
    owner = [number for number, (group, _) in enumerate(short) for _ in group.ids]
    place = [place for group, _ in short for place in group.places]
    placed = (torch.tensor(token), torch.tensor(owner), torch.tensor(place))
    tokens = torch.full((len(short), width), spare)
    branch = torch.full((len(short), width), -2)
    if short:
        tokens[placed[1:]] = placed[0]
        branch[placed[1:]] = torch.tensor([own for group, _ in short for own in group.branch])
    seen = (branch[:, None, :] == branch[:, :, None]) | (branch == -1)[:, None, :]
    seen &= torch.ones(width, width, dtype=torch.bool).tril() & (branch >= -1)[:, None, :]
    long = [slice(start, start + len(group.ids))
            for group, start in zip(groups, starts, strict=False) if group.width > CHUNK]  # fmt: skip
    return _Layout(tokens, (seen | torch.eye(width, dtype=torch.bool))[:, None], placed, long)


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


def _groups(requests: Sequence[Request], numbers: Sequence[int]) -> list[_Group]:
    groups: list[_Group] = []
    for number in numbers:
        request = requests[number]
        last = groups[-1] if groups else None
        if (
            last is None
            or last.context != request.context
            # Attention sees all of a group: a short context is not worth it.
            or len(request.context) < len(request.continuation)
            or last.start_of_next() + len(request.continuation) - 1 > CHUNK
        ):
            last = _Group(request.context)
            groups.append(last)
        last.add(number, request.continuation)
    return groups


def _batch(
    network: Instella, requests: Sequence[Request], groups: Sequence[_Group]
) -> dict[int, Likelihood]:
    starts = np.cumsum([0, *(len(group.ids) for group in groups)]).tolist()
    ids = [token for group in groups for token in group.ids]
    positions = [position for group in groups for position in group.positions]
    rows: list[int] = []
    targets: list[int] = []
    sizes: list[int] = []
    numbers: list[int] = []
    for group, start in zip(groups, starts, strict=False):
        for number, scored in zip(group.numbers, group.scored, strict=True):
            rows += [start + index for index in scored]
            targets += requests[number].continuation
            sizes.append(len(scored))
            numbers.append(number)
    states = _states(network, groups, starts, [*ids, 0], [*positions, 0])
    # A spare row here too.
    logits = network.lm_head(states[[*rows, len(ids)]]).float()
    wanted = torch.tensor([*targets, 0])
    picked = torch.log_softmax(logits, -1).gather(-1, wanted[:, None])[:-1, 0]
    values = picked.numpy().astype(np.float64)
    if not np.isfinite(values).all():
        raise KitError("evaluation: the network's logits are not finite: it has diverged")
    likeliest = (logits.argmax(-1) == wanted)[:-1].numpy()
    ends = np.cumsum(sizes)[:-1]
    return {
        number: Likelihood(own, bool(hits.all()))
        for number, own, hits in zip(
            numbers, np.split(values, ends), np.split(likeliest, ends), strict=True
        )
    }


def _states(
    network: Instella,
    groups: Sequence[_Group],
    starts: Sequence[int],
    ids: list[int],
    positions: list[int],
) -> Tensor:
    """Final, normed states [tokens, width] of all groups, one after another."""
    model = network.model
    x = model.embed_tokens(torch.tensor(ids))
    # The table's rows by position; how many tokens there are together is no sequence's length.
    cosine, sine = model.rope(x[None, :1], torch.tensor(positions))
    layout = _layout(groups, starts, len(ids) - 1)
    for layer in model.layers:
        assert isinstance(layer, Layer)
        normed = layer.pre_attention_layernorm(x)
        x = x + _attention(layer.self_attn, normed, (cosine, sine), layout)
        x = x + layer.mlp(layer.pre_feedforward_layernorm(x))
    return model.norm(x)


def _attention(
    attention: Attention, x: Tensor, rope: tuple[Tensor, Tensor], layout: _Layout
) -> Tensor:
    heads = (x.shape[0], attention.heads, -1)
    query = rotate(attention.q_norm(attention.q_proj(x)).view(heads), *rope)
    key = rotate(attention.k_norm(attention.k_proj(x)).view(heads), *rope)
    value = attention.v_proj(x).view(heads)
    out = torch.zeros_like(query)
    for own in layout.long:
        q, k, v = (part[own].transpose(0, 1)[None] for part in (query, key, value))
        out[own] = attend(q, k, v, None, attention.numerics)[0].transpose(0, 1)
    if len(layout.tokens):
        q, k, v = (part[layout.tokens].transpose(1, 2) for part in (query, key, value))
        token, group, place = layout.placed
        mixed = _attend(q, k, v, layout.mask, attention.numerics)
        out[token] = mixed.transpose(1, 2)[group, place]
    return attention.o_proj(out.view(x.shape))


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, numerics: str) -> Tensor:
    """Attention under a mask; all else [groups, heads, width, d]."""
    if numerics != PORTABLE:
        return attend(query, key, value, mask, numerics)
    queries, keys, values = (
        part.reshape(-1, *part.shape[2:])
        for part in (query * (1.0 / math.sqrt(query.shape[3])), key, value)
    )
    scores = torch.stack([chain_product(q, k) for q, k in zip(queries, keys, strict=True)])
    scores = scores.view(*query.shape[:3], -1).masked_fill_(~mask, -torch.inf)
    shares = torch.softmax(scores, -1).view(len(queries), *scores.shape[2:])
    mixed = [chain_product(p, v.t()) for p, v in zip(shares, values, strict=True)]
    return torch.stack(mixed).view(query.shape)
