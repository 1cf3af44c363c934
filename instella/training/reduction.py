"""Sums whose order never depends on the number of processes.

Floating-point addition is not associative, so what is added has to be added in one
order. The micro-batches of a global batch are the leaves of a binary tree over their
index; W processes hold aligned blocks of leaves, that is whole subtrees, and then
exchange along the levels above. One process walks the same tree with a stack.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from instella.errors import BadUse


def fold_sum_(values: Tensor) -> float:
    """Sum of a one-dimensional float64 tensor, which is used up.

    Halves are added element by element until one value is left: the same order for any
    number of threads, any vector width and any device.
    """
    size = values.numel()
    if size == 0:
        return 0.0
    while size > 1:
        half = (size + 1) // 2
        values[: size - half] += values[half:size]
        size = half
    return float(values[0].item())


def ordered_sum(values: Tensor) -> float:
    """Sum of all elements in float64, in the order of ``fold_sum_``."""
    return fold_sum_(values.detach().reshape(-1).to(torch.float64, copy=True))


def require_power_of_two(count: int, what: str) -> None:
    """BadUse unless ``count`` is 1, 2, 4, ...: the tree has no other shape."""
    if count < 1 or count & (count - 1):
        raise BadUse(f"{what} is {count}, which is not a power of two: gradients add in a tree")


@dataclass
class Partial:
    """Sum over a subtree: gradients in the order of the parameters, and plain figures."""

    gradients: list[Tensor]
    figures: dict[str, float]
    leaves: int = 1

    def add_(self, right: "Partial") -> None:
        """Add the subtree to the right of this one; its buffers are used up."""
        torch._foreach_add_(self.gradients, right.gradients)
        if right.figures.keys() != self.figures.keys():
            raise ValueError("micro-batches report different figures")
        self.figures = {name: value + right.figures[name] for name, value in self.figures.items()}
        self.leaves += right.leaves


@dataclass
class Tree:
    """Adds leaves one by one; holds at most log2(leaves) + 1 partial sums."""

    stack: list[Partial] = field(default_factory=list)

    def push(self, leaf: Partial) -> None:
        """Add the next leaf and close the subtrees that are complete."""
        self.stack.append(leaf)
        while len(self.stack) > 1 and self.stack[-1].leaves == self.stack[-2].leaves:
            right = self.stack.pop()
            self.stack[-1].add_(right)

    def root(self) -> Partial:
        """The sum, once a power of two of leaves was pushed."""
        if len(self.stack) != 1:
            raise ValueError(f"{sum(part.leaves for part in self.stack)} leaves make no whole tree")
        return self.stack[0]


def barrier(members: Any = None) -> None:
    """Wait for every rank of a group, over the CPUs' network also where ranks have GPUs."""
    dist.all_reduce(torch.zeros(1), group=members)


@dataclass(frozen=True)
class Group:
    """The processes of one training stage; ``Group()`` is a single one.

    Attributes:
        rank: of this process within the group.
        ranks: a power of two.
        members: torch's process group; None for the one of all processes.
    """

    rank: int = 0
    ranks: int = 1
    members: Any = None

    def block(self, count: int) -> range:
        """Leaves of this process among ``count``; empty for ranks beyond the leaves."""
        active = min(self.ranks, count)
        size = count // active
        return range(self.rank * size, min((self.rank + 1) * size, count))

    def add_roots_(self, tensors: list[Tensor], count: int) -> None:
        """Turn the sums of the blocks into the sum of all ``count`` leaves, in place.

        Ranks whose ``block(count)`` is empty pass buffers of the right shape.
        """
        active = min(self.ranks, count)
        distance = 1
        while distance < active:
            if self.rank < active:
                self._add_partner_(tensors, self.rank ^ distance)
            distance *= 2
        for target in range(active, self.ranks):
            source = target % active
            if self.rank == source:
                for tensor in tensors:
                    dist.send(tensor, group=self.members, group_dst=target)
            elif self.rank == target:
                for tensor in tensors:
                    dist.recv(tensor, group=self.members, group_src=source)

    def scatter_sum(self, parts: Tensor) -> Tensor:
        """The sum over all ranks of row ``rank`` of ``parts``.

        The rows add as in ``add_roots_`` with a leaf for each rank. On each level half of what
        is left goes to the partner, so a rank sends no more than it holds.

        Args:
            parts: [ranks, n], one row for each rank; used up.
        """
        held, distance = list(range(self.ranks)), 1
        while distance < self.ranks:
            own = [row for row in held if not (row ^ self.rank) & distance]
            other = [row for row in held if (row ^ self.rank) & distance]
            parts[own] += self._exchanged(parts[other], self.rank ^ distance)
            held, distance = own, distance * 2
        return parts[self.rank]

    def combine(self, partial: Partial | None, shapes: Sequence[Tensor], count: int) -> Partial:
        """The whole sum from each rank's block.

        Args:
            partial: the root of this rank's block; None where the block is empty.
            shapes: tensors shaped like the gradients, for ranks without a block.
            count: leaves of the whole tree.
        """
        if self.ranks == 1:
            assert partial is not None
            return partial
        names = sorted(partial.figures) if partial is not None else []
        if count < self.ranks:
            names = self.share("\n".join(names)).split("\n")
        if partial is None:
            partial = Partial(
                [torch.zeros_like(item) for item in shapes], dict.fromkeys(names, 0.0)
            )
        # one message a level: a tensor at a time costs more in waiting than this copy
        flat = torch.cat([gradient.reshape(-1) for gradient in partial.gradients])
        packed = torch.tensor([partial.figures[name] for name in names], dtype=torch.float64)
        self.add_roots_([flat, packed], count)
        pieces = flat.split([gradient.numel() for gradient in partial.gradients])
        gradients = [
            piece.view(gradient.shape)
            for piece, gradient in zip(pieces, partial.gradients, strict=True)
        ]
        return Partial(gradients, dict(zip(names, packed.tolist(), strict=True)), count)

    def share(self, text: str) -> str:
        """Rank 0's text, which is not empty, on every rank."""
        if self.ranks == 1:
            return text
        data = text.encode("utf-8")
        size = torch.tensor([len(data)], dtype=torch.int64)
        dist.broadcast(size, group=self.members, group_src=0)
        buffer = torch.zeros(int(size.item()), dtype=torch.uint8)
        if self.rank == 0:
            buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        dist.broadcast(buffer, group=self.members, group_src=0)
        return bytes(buffer.tolist()).decode("utf-8")

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.ranks > 1:
            barrier(self.members)

    def _add_partner_(self, tensors: list[Tensor], partner: int) -> None:
        for tensor in tensors:
            tensor.add_(self._exchanged(tensor, partner))

    def _exchanged(self, tensor: Tensor, partner: int) -> Tensor:
        """The partner's tensor, for this one."""
        received = torch.empty_like(tensor)
        # together: NCCL would wait in the first of the two for the partner's second
        both = [
            dist.P2POp(dist.isend, tensor, group=self.members, group_peer=partner),
            dist.P2POp(dist.irecv, received, group=self.members, group_peer=partner),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        return received


ALONE = Group()
