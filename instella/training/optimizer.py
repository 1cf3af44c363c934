"""AdamW over every tensor, clipping by the total norm, and the moments as plain tensors.

The optimizer may hold a part of each tensor. Its kernel rounds the last elements of a tensor,
which fill no vector register, in another way than the rest, so an update of a part takes care
that every element is computed as it would be in the whole.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from instella.errors import VerificationError
from instella.recipe import settings
from instella.training.reduction import fold_sum_

STEP = "step"


@dataclass(frozen=True)
class Part:
    """What this process holds of one parameter: some of its rows, or all.

    Attributes:
        name: of the parameter.
        tensor: a leaf with the rows held; its ``grad`` is that of these rows.
        first: number of the first row held.
        shape: of the whole parameter.
    """

    name: str
    tensor: nn.Parameter
    first: int
    shape: torch.Size

    def cuts(self, lanes: int) -> tuple[int, int]:
        """Where the elements held end that fill vectors, and those that did in the whole."""
        size, whole = self.tensor.numel(), self.shape.numel()
        start = self.first * (whole // max(1, self.shape[0]))
        end = max(0, min(size, whole - whole % lanes - start))
        return end - end % lanes, end


def whole_parts(network: nn.Module) -> list[Part]:
    """Every parameter, held whole."""
    return [Part(name, item, 0, item.shape) for name, item in network.named_parameters()]


class AdamW:
    """AdamW with decoupled decay on all parameters, norms and embeddings too, as published.

    It is torch's fused kernel, whose square root is correctly rounded on every CPU; that
    of the other two goes through a library that rounds differently by processor.

    Args:
        network: whose parameters are updated; each needs a gradient at every update.
        chosen: betas, epsilon, decay.
        parts: what is held of them; None for all.

    Attributes:
        step: updates that the moments have seen, those of an earlier stage included.
    """

    def __init__(
        self,
        network: nn.Module,
        chosen: settings.Optimizer,
        parts: Sequence[Part] | None = None,
    ) -> None:
        self._chosen = chosen
        self._parts = whole_parts(network) if parts is None else parts
        self._first = [torch.zeros_like(part.tensor, requires_grad=False) for part in self._parts]
        self._second = [torch.zeros_like(part.tensor, requires_grad=False) for part in self._parts]
        self._lanes = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8
        self.step = 0

    @torch.no_grad()
    def update(self, learning_rate: float) -> None:
        """Apply the gradients in ``.grad``."""
        rows, back = [], []
        for part, *moments in zip(self._parts, self._first, self._second, strict=True):
            assert part.tensor.grad is not None
            row = (part.tensor, part.tensor.grad, *moments)
            filled, end = part.cuts(self._lanes)
            if filled == part.tensor.numel() or part.tensor.shape == part.shape:
                rows.append(row)
                continue
            flat = tuple(item.reshape(-1) for item in row)
            padded = tuple(_padded(item[filled:end], self._lanes) for item in flat)
            back.append((tuple(item[filled:end] for item in flat), padded))
            rows += [tuple(item[:filled] for item in flat), padded]
            rows.append(tuple(item[end:] for item in flat))
        self._run(rows, learning_rate)
        for held, padded in back:
            for item, found in zip(held, padded, strict=True):
                item.copy_(found[: item.numel()])
        self.step += 1

    def _run(self, rows: Sequence[Sequence[Tensor]], learning_rate: float) -> None:
        parameters, gradients, first, second = map(list, zip(*rows, strict=True))
        # the kernel counts in float32, exact up to 2**24 updates
        steps = [torch.tensor(float(self.step), device=item.device) for item in parameters]
        adamw(
            parameters,
            gradients,
            first,
            second,
            [],
            steps,
            fused=True,
            amsgrad=False,
            maximize=False,
            beta1=self._chosen.beta1,
            beta2=self._chosen.beta2,
            lr=learning_rate,
            weight_decay=self._chosen.weight_decay,
            eps=self._chosen.epsilon,
        )

    def export_state(self) -> dict[str, Tensor]:
        """Moments ``exp_avg.NAME`` and ``exp_avg_sq.NAME``, and ``step``, int64 [1].

        The tensors are the optimizer's own, not copies.
        """
        tensors = {STEP: torch.tensor([self.step], dtype=torch.int64)}
        for kind, moments in self._moments().items():
            tensors |= {f"{kind}.{name}": item for name, item in moments.items()}
        return tensors

    def _moments(self) -> dict[str, dict[str, Tensor]]:
        names = [part.name for part in self._parts]
        return {
            "exp_avg": dict(zip(names, self._first, strict=True)),
            "exp_avg_sq": dict(zip(names, self._second, strict=True)),
        }

    def restore_state(self, tensors: Mapping[str, Tensor], where: Path) -> None:
        """Continue from what ``export_state`` gave.

        The published stage 2 keeps moments and step counter of stage 1 and resets only
        the trainer's own counters (``reset_trainer_state``), so the bias correction
        does not start anew.

        Args:
            tensors: by name; copied.
            where: the file, for the error.

        Raises:
            VerificationError: names, shapes or dtypes are not those of the network.
        """
        own = self.export_state()
        odd = sorted(own.keys() ^ tensors.keys())
        if odd:
            raise VerificationError(
                f"{where}: tensor {odd[0]} is missing or unknown: the moments belong to another "
                "network"
            )
        for name, tensor in own.items():
            given = tensors[name]
            if given.shape != tensor.shape or given.dtype != tensor.dtype:
                raise VerificationError(
                    f"{where}: {name} is {given.dtype} {list(given.shape)}, the network has "
                    f"{tensor.dtype} {list(tensor.shape)}"
                )
            tensor.copy_(given)
        self.step = int(tensors[STEP].item())


def _padded(part: Tensor, size: int) -> Tensor:
    """The part and zeros behind it, ``size`` elements; none if the part has none."""
    padded = part.new_zeros(size if part.numel() else 0)
    padded[: part.numel()] = part
    return padded


def sum_of_squares(gradients: Sequence[Tensor]) -> float:
    """In float64: each tensor's in the order of ``fold_sum_``, then tensor after tensor."""
    total = 0.0
    for gradient in gradients:
        total += fold_sum_(gradient.reshape(-1).to(torch.float64).square())
    return total


def clip(
    parameters: Iterable[nn.Parameter],
    limit: float | None,
    squares: Callable[[Sequence[Tensor]], float] = sum_of_squares,
) -> float:
    """Scale all gradients so that their total norm is at most ``limit``.

    The published coefficient is min(1, limit / (norm + 1e-6)). Squares are summed in
    float64, each tensor in a fixed order, tensors in the order given.

    Args:
        parameters: with gradients; those without are left out.
        limit: largest norm; None only measures.
        squares: sum of the squares of all gradients, also where a process holds parts of them.

    Returns:
        The total norm before clipping; not finite if any gradient is not.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = math.sqrt(squares(gradients))
    if limit is not None and math.isfinite(norm):
        coefficient = min(1.0, limit / (norm + 1e-6))
        if coefficient < 1.0:
            torch._foreach_mul_(gradients, coefficient)
    return norm
