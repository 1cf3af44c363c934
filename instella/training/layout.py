"""How the network lies on the ranks: whole on each of them.

A layout says which micro-batches a rank runs, how their gradients become the sum of the
global batch, and how figures and digests of whole tensors come from what a rank holds. The
loop asks it and is the same for every layout; ``sharding.py`` has the other one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from instella.training.ledger import DigestTogether, tensor_digests
from instella.training.optimizer import Part, sum_of_squares, whole_parts
from instella.training.precision import DTYPES
from instella.training.reduction import Group, Partial


class Layout(Protocol):
    """What the loop asks; ``Whole`` and ``Sharded`` say it.

    Attributes:
        parts: what this rank holds, float32, in the order of the parameters.
        rank: of this process among all.
    """

    parts: list[Part]
    rank: int

    def refresh(self) -> None:
        """Bring what the network computes with to what ``parts`` hold by now."""

    @property
    def digest_together(self) -> DigestTogether | None:
        """Digests tensors by name, in every rank; None where each rank holds them whole."""

    def leaves(self, count: int) -> range:
        """Numbers of the micro-batches, of ``count``, that this rank runs, in order."""

    def leaf(self, figures: dict[str, float]) -> Partial:
        """Take the gradients of the micro-batch just run from the network."""

    def combine(self, partial: Partial | None, count: int) -> Partial:
        """The sum over ``count`` micro-batches, of what this rank holds, from its own leaves."""

    def squares(self, gradients: Sequence[Tensor]) -> float:
        """Sum of the squares of all gradients, from this rank's part of each."""

    def start_digest(self, tensors: Mapping[str, Tensor]) -> str:
        """Digest of the weights and moments as this rank read them, 64 hex digits."""

    def note(self, digest: str) -> None:
        """Remember what this rank has read, for ``start_digest``."""

    def rows(self, name: str) -> slice | None:
        """The rows of a tensor of the trainer that this rank holds; None for all."""

    def cut(self, tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
        """This rank's part of whole tensors, named as the trainer's."""

    def gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whole tensors on rank 0, from each rank's parts of them; none on the others."""


class Whole:
    """Every rank holds all parameters and runs a block of the micro-batches.

    Args:
        network: float32, trained in place.
        group: the processes.
        precision: a name of ``DTYPES``; the network is left in it.
    """

    digest_together: DigestTogether | None = None

    def __init__(self, network: nn.Module, group: Group, precision: str = "float32") -> None:
        self.group = group
        self.rank = group.rank
        self.parts = whole_parts(network)
        self._computed: list[Tensor] = list(network.parameters())
        self._copied = DTYPES[precision] is not torch.float32
        if self._copied:
            self.parts = [
                replace(part, tensor=nn.Parameter(part.tensor.detach())) for part in self.parts
            ]
            network.to(DTYPES[precision])

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the weights into their copies, where the network computes with copies."""
        if self._copied:
            torch._foreach_copy_(self._computed, [part.tensor for part in self.parts])

    def leaves(self, count: int) -> range:
        """An aligned block, which is a whole subtree."""
        return self.group.block(count)

    def leaf(self, figures: dict[str, float]) -> Partial:
        """The whole gradients, float32; zeros where there is none."""
        return Partial([take_gradient(item).float() for item in self._computed], figures)

    def combine(self, partial: Partial | None, count: int) -> Partial:
        """As ``Group.combine``."""
        return self.group.combine(partial, [part.tensor for part in self.parts], count)

    def squares(self, gradients: Sequence[Tensor]) -> float:
        """As ``sum_of_squares``."""
        return sum_of_squares(gradients)

    def start_digest(self, tensors: Mapping[str, Tensor]) -> str:
        """The Merkle root over the tensors."""
        root: str = tensor_digests(tensors)["root"]
        return root

    def note(self, digest: str) -> None:
        """Nothing: ``start_digest`` looks at the tensors themselves."""

    def rows(self, name: str) -> slice | None:
        """All."""
        return None

    def cut(self, tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
        """The same tensors."""
        return dict(tensors)

    def gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same tensors, on rank 0."""
        return dict(tensors) if self.group.rank == 0 else {}


def take_gradient(parameter: Any) -> Any:
    """A parameter's gradient, contiguous and taken away from it; zeros if it has none."""

    gradient, parameter.grad = parameter.grad, None
    return torch.zeros_like(parameter) if gradient is None else gradient.contiguous()
