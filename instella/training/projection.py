"""From token ids to label log-probabilities, without holding all logits at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from instella.errors import BadUse
from instella.network.attention import Documents
from instella.network.device import CPU
from instella.recipe.settings import LOGITS_AT_ONCE
from instella.training.objectives import target_logprobs

COLUMN_STEP = 32


def network_logprobs(
    network: Any,
    ids: Tensor,
    at_once: int = LOGITS_AT_ONCE,
    documents: Documents | None = None,
) -> Tensor:
    """Label log-probabilities of ``ids``, float32 [B, T - 1], on the CPU.

    Where B * T * V is large the head runs over parts of the sequence, and each part's
    logits are computed again in the backward pass. The cut depends on the shape of the
    micro-batch alone, so it is the same for any number of processes.

    Args:
        network: has ``hidden(ids) -> [B, T, width]`` and ``lm_head``.
        ids: int64 [B, T], on the CPU.
        at_once: logits, B * T * V, that may exist at once; log-softmax and the gradient
            need as much again.
        documents: what the tokens attend within; None for whole rows.
    """
    states = network.hidden(ids, mask=documents)[:, :-1]
    targets = ids[:, 1:].to(states.device)
    logits = targets.numel() * network.lm_head.weight.shape[0]
    parts = min(-(-logits // at_once), targets.shape[1])

    def project(states: Tensor, targets: Tensor) -> Tensor:
        return target_logprobs(network.lm_head(states), targets)

    if parts <= 1:
        return project(states, targets).to(CPU)
    pieces = zip(states.tensor_split(parts, 1), targets.tensor_split(parts, 1), strict=True)
    columns = [
        checkpoint(project, piece, labels, use_reentrant=False, preserve_rng_state=False)
        for piece, labels in pieces
    ]
    return torch.cat(columns, dim=1).to(CPU)


def needed_columns(*masks: np.ndarray) -> int:
    """Columns up to the last label of any row, rounded up to a multiple of 32.

    What stands right of the last label changes no loss under a causal mask, so it need
    not be computed. Rounding keeps the number of different shapes small.

    Args:
        masks: bool [B, T] each, the same T.
    """
    length = masks[0].shape[1]
    last = 0
    for mask in masks:
        labelled = np.flatnonzero(mask.any(axis=0))
        if labelled.size:
            last = max(last, int(labelled[-1]) + 1)
    return min(length, max(COLUMN_STEP, -(-last // COLUMN_STEP) * COLUMN_STEP))


def recompute_activations(network: nn.Module) -> None:
    """Let every layer keep only its input and compute the rest again in backward.

    Raises:
        BadUse: the network has no list of layers.
    """
    for layer in layers_of(network, "activation_checkpointing"):
        layer.forward = _recomputed(layer.forward)


def layers_of(network: nn.Module, setting: str) -> list[nn.Module]:
    """The network's layers.

    Raises:
        BadUse: it has no list of layers, which ``setting`` needs.
    """
    lists = [module for module in network.modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise BadUse(f"{setting}: the network has no list of layers")
    return [layer for layers in lists for layer in layers]


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*arguments, **named)
        return checkpoint(
            forward, *arguments, use_reentrant=False, preserve_rng_state=False, **named
        )

    return run
