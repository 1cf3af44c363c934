"""Bytes of weights, moments, activations, checkpoints and data."""

from instella.recipe.settings import Model

# Token ids are uint16, label masks one byte.
TOKEN_BYTES = 2
MASK_BYTES = 1


def state_bytes(parameters: int, shards: int) -> float:
    """Weights in float32, gradients in float32 and two float32 moments: 16 bytes a weight.

    The 16 bytes of mixed-precision Adam in ZeRO (Rajbhandari et al. 2020, arXiv
    1910.02054, section 3.1), here all sharded over ``shards`` accelerators.
    """
    return 16.0 * parameters / shards


def gathered_bytes(parameters: int) -> float:
    """What one accelerator gathers when the whole network is one unit of sharding, as in the
    published pretraining: weights and gradients in bf16, 4 bytes a weight."""
    return 4.0 * parameters


def activation_bytes(model: Model, tokens: int, checkpointed: bool, width: int = 2) -> float:
    """What a forward pass keeps for the backward pass.

    Counted in the manner of Korthikanti et al. 2022 (arXiv 2205.05198, section 4.1: inputs
    of every operation whose gradient needs them) for this network with an attention kernel
    that keeps no T x T matrix. A token of a layer keeps ten vectors of the hidden size
    (inputs and outputs of the two norms, q and k before and after norm and rotation, v,
    the attention's output) and three of the intermediate size (gate, up, their product).
    With checkpointing each layer keeps its input, and one layer at a time the rest.

    Args:
        model: the network.
        tokens: of one micro-batch.
        checkpointed: activations are recomputed layer by layer.
        width: bytes of a value, 2 for bf16.
    """
    layer = 10 * model.hidden_size + 3 * model.intermediate_size
    if checkpointed:
        kept = model.num_hidden_layers * model.hidden_size + layer
    else:
        kept = model.num_hidden_layers * layer
    return float(width * tokens * kept)


def logit_bytes(model: Model, tokens: int, width: int = 2) -> float:
    """Logits of a micro-batch, their float32 copy for the loss, and its float32 gradient."""
    return float((width + 4 + 4) * tokens * model.vocab_size)


def resumable_bytes(parameters: int) -> float:
    """A checkpoint that training continues from: float32 weights and two moments."""
    return 12.0 * parameters


def released_bytes(parameters: int) -> float:
    """Weights in bf16, as they are published."""
    return 2.0 * parameters
