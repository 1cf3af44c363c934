"""Floating-point operations of the network.

A matrix product of m x k with k x n counts 2 m k n. Norms, rotary embedding, softmax and
the optimizer are left out, as is usual; they are below one per cent at this size.
"""

from instella.recipe.derived import parameter_count
from instella.recipe.settings import Model


def multiplied_parameters(model: Model) -> int:
    """Weights that a token is multiplied with: all but the input embedding, a lookup."""
    return parameter_count(model) - model.vocab_size * model.hidden_size


def forward_flops(model: Model, length: int) -> float:
    """Operations of one token in a forward pass over sequences of ``length`` tokens.

    2 N + 4 L h T, with N ``multiplied_parameters``, L layers, h the hidden size and T the
    length: a third of the training count of PaLM (Chowdhery et al. 2022, arXiv 2204.02311,
    appendix B: 6 N + 12 L H Q T, where H Q = h). As there, attention counts the whole T x T
    matrix although half of it is masked. PaLM takes N with the embedding.
    """
    attention = 4 * model.num_hidden_layers * model.hidden_size * length
    return float(2 * multiplied_parameters(model) + attention)


def training_flops(model: Model, length: int) -> float:
    """Operations of one token in a forward and a backward pass: three times the forward.

    Model operations: those that activation checkpointing repeats are not counted, so the
    utilization that divides them is a model FLOPs utilization (MFU).
    """
    return 3.0 * forward_flops(model, length)


def seconds(flops: float, peak_flops: float, utilization: float) -> float:
    """Time of one accelerator for ``flops`` at a share ``utilization`` of its peak."""
    return flops / (peak_flops * utilization)
