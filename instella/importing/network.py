"""Is it the recipe's network, whole, and made of numbers?"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from instella.canonical import read_json
from instella.errors import VerificationError
from instella.importing.folder import CONFIG
from instella.network.config import settings_of
from instella.network.folder import load_folder
from instella.network.network import Instella
from instella.recipe.settings import Model, Recipe

# A published checkpoint's longest sequence is its own: 4,096 for most, more for Math.
_FREE = "max_position_embeddings"
# Nothing is computed with the network; the class only has to exist everywhere.
_NUMERICS = "native-cpu"
_WIDEST_BYTES = 4


@dataclass(frozen=True)
class Weights:
    """What was found.

    Attributes:
        max_positions: ``max_position_embeddings`` of the folder.
        dtype: of every tensor, such as ``bfloat16``.
        tensors, parameters: how many.
    """

    max_positions: int
    dtype: str
    tensors: int
    parameters: int


def largest_bytes(model: Model) -> int:
    """Bytes of all tensors of the network in the widest dtype that is read."""
    with torch.device("meta"):
        network = Instella(model, _NUMERICS)
    return _WIDEST_BYTES * sum(tensor.numel() for tensor in network.state_dict().values())


def check_network(folder: Path, recipe: Recipe) -> Weights:
    """Check configuration and tensors of a folder against the recipe.

    The tensors stand in memory once, in their own dtype.

    Raises:
        VerificationError: a setting, an id, a name, a shape or a dtype is another, a tensor
            is missing or too many, or holds NaN or an infinity.
    """
    max_positions = check_config(read_json(folder / CONFIG), str(folder / CONFIG), recipe)
    state = load_folder(folder, _NUMERICS).state_dict()
    for name, tensor in state.items():
        if not torch.isfinite(tensor).all():
            raise VerificationError(f"{folder}: {name} holds NaN or an infinity; not a trained one")
    dtype = str(next(iter(state.values())).dtype).removeprefix("torch.")
    parameters = sum(tensor.numel() for tensor in state.values())
    return Weights(max_positions, dtype, len(state), parameters)


def check_config(config: Any, where: str, recipe: Recipe) -> int:
    """Compare ``config.json`` with the recipe; its ``max_position_embeddings``.

    Raises:
        VerificationError: the first setting or id that differs.
    """
    found = settings_of(config, where)
    for item in fields(Model):
        ours, theirs = getattr(recipe.model, item.name), getattr(found, item.name)
        if item.name != _FREE and ours != theirs:
            raise VerificationError(
                f"{where}: {item.name} is {theirs}, the recipe's model has {ours}; they are "
                "different networks"
            )
    _check_ids(config, where, recipe)
    return found.max_position_embeddings


def _check_ids(config: Mapping[str, Any], where: str, recipe: Recipe) -> None:
    eos, pad = recipe.tokenizer.eos_id, recipe.tokenizer.pad_id
    for key, wanted in (("bos_token_id", eos), ("eos_token_id", eos), ("pad_token_id", pad)):
        value = config.get(key)
        if type(value) is not int or value != wanted:
            raise VerificationError(
                f"{where}: {key} is {value!r:.80}, the recipe's tokenizer has {wanted}"
            )
