"""Figures that follow from a recipe's settings."""

from instella.errors import BadUse
from instella.recipe.settings import Model, Pretrain, Recipe


def parameter_count(model: Model) -> int:
    """Weights of the network: untied embedding and head, no biases.

    Embedding, head, the layers and one norm before the head. Gives 3,112,675,840 for
    Instella 3B, as on the published model card (3.11B).
    """
    layers = model.num_hidden_layers * layer_parameter_count(model)
    return embedding_count(model) + layers + model.hidden_size


def layer_parameter_count(model: Model) -> int:
    """Weights of a layer: q, k, v, o (4 h^2), the norms of q and k (2 h), gate, up and down
    (3 h i) and two norms (2 h)."""
    hidden, wide = model.hidden_size, model.intermediate_size
    return 4 * hidden * hidden + 2 * hidden + 3 * hidden * wide + 2 * hidden


def embedding_count(model: Model) -> int:
    """Weights of embedding and head together."""
    return 2 * model.vocab_size * model.hidden_size


def tensor_count(model: Model) -> int:
    """Tensors of a checkpoint: 7 matrices and 4 norms a layer, embedding, head, last norm."""
    return 11 * model.num_hidden_layers + 3


def trained_tokens(pretrain: Pretrain) -> int | None:
    """Tokens that ``max_steps`` updates read (each seed for itself); None without it."""
    training = pretrain.training
    if training.max_steps is None:
        return None
    return training.max_steps * training.global_batch * pretrain.data.sequence_length


def check_tokens(recipe: Recipe) -> None:
    """The steps of a pretraining stage ask for no more tokens than its data may hold.

    Raises:
        BadUse: with both figures.
    """
    for name in ("pretrain_stage1", "pretrain_stage2"):
        pretrain: Pretrain = getattr(recipe.stages, name)
        wanted, most = trained_tokens(pretrain), pretrain.data.max_tokens
        if wanted is None or most is None:
            continue
        given = most * pretrain.training.epochs
        if wanted > given:
            raise BadUse(
                f"stages.{name}: max_steps x global_batch x sequence_length = {wanted} tokens, "
                f"but max_tokens x epochs = {given}; lower max_steps or raise max_tokens"
            )
