"""Bytes of weights, moments, activations, checkpoints and data."""

from instella.recipe.derived import parameter_count
from instella.recipe.settings import Model, Training

# Token ids are uint16, label masks one byte.
TOKEN_BYTES = 2
MASK_BYTES = 1
# Bytes of a value of a training's precision.
WIDTHS = {"float32": 4, "bfloat16": 2}


def state_bytes(parameters: int, shards: int) -> float:
    """Weights in float32, gradients in float32 and two float32 moments: 16 bytes a weight.

    The 16 bytes of mixed-precision Adam in ZeRO (Rajbhandari et al. 2020, arXiv
    1910.02054, section 3.1), here all sharded over ``shards`` accelerators.
    """
    return 16.0 * parameters / shards


def gathered_bytes(parameters: int, precision: str) -> float:
    """What one accelerator gathers when the whole network is one unit of sharding, as in the
    published pretraining: weights and gradients in the training's precision."""
    return 2.0 * WIDTHS[precision] * parameters


def layer_values(model: Model) -> int:
    """Values that a token of a layer keeps for the backward pass: 14 h + 4 i.

    Counted in the manner of Korthikanti et al. 2022 (arXiv 2205.05198, section 4.1: inputs
    of every operation whose gradient needs them) for this network, eager, with an attention
    kernel that keeps no T x T matrix. Of the hidden size h: input, normed and scaled of each
    of the two norms, q and k before and after norm and rotation, v, the attention's output.
    Of the intermediate size i: gate, its SiLU, up, their product.
    """
    return 14 * model.hidden_size + 4 * model.intermediate_size


def layer_bytes(model: Model, width: int, compiled: bool = False) -> int:
    """Bytes of ``layer_values``; eager norms keep their inputs, four vectors, in float32.

    Args:
        model: the network.
        width: bytes of a value, 2 for bfloat16.
        compiled: a fused norm turns its input into float32 again instead (not measured).
    """
    kept = width if compiled else 4
    return width * layer_values(model) + (kept - width) * 4 * model.hidden_size


def activation_bytes(
    model: Model, tokens: int, checkpointed: bool, width: int, compiled: bool = False
) -> float:
    """What a forward pass keeps for the backward pass: each layer's values, or with
    checkpointing its input, and four vectors around the last norm.

    Args:
        model: the network.
        tokens: of one micro-batch.
        checkpointed: activations are recomputed layer by layer.
        width, compiled: as for ``layer_bytes``; the last norm is not in a layer.
    """
    layer = width * model.hidden_size if checkpointed else layer_bytes(model, width, compiled)
    around = (3 * width + 4) * model.hidden_size
    return float(tokens * (model.num_hidden_layers * layer + around))


def logit_bytes(model: Model, tokens: int, at_once: int) -> float:
    """Logits that exist at once, their log-probabilities and their gradient.

    12 bytes each in either precision: bfloat16 logits are turned into float32. The head runs
    over parts of a micro-batch with ``at_once`` logits at most (training/projection.py).
    """
    return 12.0 * min(tokens * model.vocab_size, at_once)


def training_bytes(
    model: Model, tokens: int, training: Training, checkpointed: bool, shards: int = 1
) -> float:
    """Peak of an update of one micro-batch an accelerator, without what is gathered.

    Weights and moments, and the larger of two moments in time: the loss, when all
    activations are kept and there is no gradient yet, and the end of the backward pass, when
    all gradients are there and one layer's values. In between one grows as the other shrinks.
    Where nothing is gathered, bfloat16 has a copy of the weights.

    Args:
        model, tokens, checkpointed: as for ``activation_bytes``.
        training: its precision, compilation and logits.
        shards: accelerators over which states are sharded.
    """
    width, compiled = WIDTHS[training.precision], training.compile
    states = state_bytes(parameter_count(model), shards)
    gradients = states / 4
    loss = activation_bytes(model, tokens, checkpointed, width, compiled)
    loss += logit_bytes(model, tokens, training.logits_at_once)
    last = gradients + float(tokens * layer_bytes(model, width, compiled))
    copied = shards == 1 and training.precision == "bfloat16"
    copies = float(width * parameter_count(model)) if copied else 0.0
    return states - gradients + copies + max(loss, last)


def resumable_bytes(parameters: int) -> float:
    """A checkpoint that training continues from: float32 weights and two moments."""
    return 12.0 * parameters


def released_bytes(parameters: int) -> float:
    """Weights in bf16, as they are published."""
    return 2.0 * parameters
