"""AdamW over every tensor, clipping by the total norm, and the moments as plain tensors."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from instella.errors import VerificationError
from instella.recipe import settings
from instella.training.reduction import fold_sum_

STEP = "step"


class AdamW:
    """AdamW with decoupled decay on all parameters, norms and embeddings too, as published.

    It is torch's fused kernel, whose square root is correctly rounded on every CPU; that
    of the other two goes through a library that rounds differently by processor.

    Args:
        network: whose parameters are updated; each needs a gradient at every update.
        chosen: betas, epsilon, decay.

    Attributes:
        step: updates that the moments have seen, those of an earlier stage included.
    """

    def __init__(self, network: nn.Module, chosen: settings.Optimizer) -> None:
        self._chosen = chosen
        self._names = [name for name, _ in network.named_parameters()]
        self._parameters = list(network.parameters())
        self._first = [torch.zeros_like(item, requires_grad=False) for item in self._parameters]
        self._second = [torch.zeros_like(item, requires_grad=False) for item in self._parameters]
        self._set_step(0)

    @property
    def step(self) -> int:
        """Updates that the moments have seen."""
        return int(self._steps[0].item())

    def _set_step(self, step: int) -> None:
        # the kernel counts in float32, exact up to 2**24 updates
        self._steps = [torch.tensor(float(step), device=item.device) for item in self._parameters]

    @torch.no_grad()
    def update(self, learning_rate: float) -> None:
        """Apply the gradients in ``.grad``."""
        adamw(
            self._parameters,  # type: ignore[arg-type]
            [item.grad for item in self._parameters],  # type: ignore[misc]
            self._first,
            self._second,
            [],
            self._steps,
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
        return {
            "exp_avg": dict(zip(self._names, self._first, strict=True)),
            "exp_avg_sq": dict(zip(self._names, self._second, strict=True)),
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
        self._set_step(int(tensors[STEP].item()))


def clip(parameters: Iterable[nn.Parameter], limit: float | None) -> float:
    """Scale all gradients so that their total norm is at most ``limit``.

    The published coefficient is min(1, limit / (norm + 1e-6)). Squares are summed in
    float64, each tensor in a fixed order, tensors in the order given.

    Args:
        parameters: with gradients; those without are left out.
        limit: largest norm; None only measures.

    Returns:
        The total norm before clipping; not finite if any gradient is not.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    total = 0.0
    for gradient in gradients:
        total += fold_sum_(gradient.reshape(-1).to(torch.float64).square())
    norm = math.sqrt(total)
    if limit is not None and math.isfinite(norm):
        coefficient = min(1.0, limit / (norm + 1e-6))
        if coefficient < 1.0:
            torch._foreach_mul_(gradients, coefficient)
    return norm
