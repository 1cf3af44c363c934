"""Where the tokens of packed requests stand for attention; ``evaluation.packed`` says why."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from instella.network.product import CHUNK
from instella.rollout.generate import LANES

Ids = tuple[int, ...]


def rounded(size: int) -> int:
    """A size that is not below ``size``, of four in each octave.

    A product of a new shape is compiled first, which takes longer than a small product itself.
    """
    step = max(LANES, 1 << size.bit_length() >> 3)
    return -(-size // step) * step


@dataclass
class Group:
    """A context and what follows it.

    Attributes:
        numbers: of the requests.
        places: for each token, in order, where it stands among the keys of attention.
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
        """Places of its keys."""
        return self.places[-1] + 1


@dataclass(frozen=True)
class Queries:
    """Tokens that attend, and the slot of each in its group.

    Attributes:
        rows: int64 [attending], which of all tokens; None for all of them.
        tokens: int64 [groups, most], for each slot which of those that attend; the last
            where none is.
        unseen: float32 [groups, most, width], minus infinity where the token of a slot does
            not see a key, else 0.
        slots: int64 [tokens of groups] each: which of those that attend, group and slot.
        long: for each group that no chain takes its tokens, and where they are among those
            that attend.
    """

    rows: Tensor | None
    tokens: Tensor
    unseen: Tensor
    slots: tuple[Tensor, Tensor, Tensor]
    long: list[tuple[slice, slice]]


class Layout:
    """Where attention finds the keys of a batch.

    Attributes:
        tokens: how many there are, spare ones included.
        keys: int64 [groups, width], the token at each place; the last one where none is.
            Groups that no chain takes have no row.

    Args:
        groups: their tokens stand one after another, and at least one spare one behind them.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        sizes = [len(group.ids) for group in groups]
        ends = np.cumsum(sizes).tolist()
        self.tokens = rounded(ends[-1] + 1)
        self._long = [slice(end - size, end) for group, size, end in zip(
            groups, sizes, ends, strict=True) if group.width > CHUNK]  # fmt: skip
        short = [group for group in groups if group.width <= CHUNK]
        self._mine = np.flatnonzero(np.repeat([group.width <= CHUNK for group in groups], sizes))
        self._owners = np.repeat(np.arange(len(short)), [len(group.ids) for group in short])
        places = np.array([place for group in short for place in group.places], np.int64)
        branches = np.array([own for group in short for own in group.branch], np.int64)
        width = rounded(max([1, *(group.width for group in short)]))
        keys = np.full((len(short), width), self.tokens - 1)
        keys[self._owners, places] = self._mine
        self.keys = torch.from_numpy(keys)
        held = np.full(keys.shape, -2)
        held[self._owners, places] = branches
        # For each token and place: a context's tokens are seen by all that come after.
        held = held[self._owners]
        seen = (held == branches[:, None]) | (held == -1)
        seen &= np.arange(width) <= places[:, None]
        self._unseen = np.where(seen, np.float32(0), np.float32(-np.inf))

    def everyone(self) -> Queries:
        """Every token attends."""
        return self._queries(np.arange(self.tokens), None)

    def only(self, scored: np.ndarray) -> Queries:
        """Of groups that a chain takes only some tokens attend, and spare ones behind them.

        Args:
            scored: int64, increasing; tokens.
        """
        whole = [np.arange(own.start, own.stop) for own in self._long]
        kept = np.unique(np.concatenate([scored, *whole]))
        rows = np.full(rounded(len(kept) + 1), self.tokens - 1)
        rows[: len(kept)] = kept
        return self._queries(rows, torch.from_numpy(rows))

    def _queries(self, rows: np.ndarray, kept: Tensor | None) -> Queries:
        """Queries of some tokens, increasing; spare ones stand last, and in no slot."""
        mine = np.isin(self._mine, rows)
        among = np.searchsorted(rows, self._mine[mine])
        owners = self._owners[mine]
        counts = np.bincount(owners, minlength=len(self.keys))
        slots = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        most = rounded(max([1, *counts.tolist()]))
        tokens = np.full((len(self.keys), most), len(rows) - 1)
        tokens[owners, slots] = among
        unseen = np.zeros((*tokens.shape, self.keys.shape[1]), np.float32)
        unseen[owners, slots] = self._unseen[mine]
        starts = [int(np.searchsorted(rows, own.start)) for own in self._long]
        return Queries(
            kept, torch.from_numpy(tokens), torch.from_numpy(unseen),
            (torch.from_numpy(among), torch.from_numpy(owners), torch.from_numpy(slots)),
            [(own, slice(start, start + own.stop - own.start))
             for own, start in zip(self._long, starts, strict=True)],
        )  # fmt: skip
