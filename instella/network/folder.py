"""A Hugging Face folder: configuration, weights and tokenizer of one network."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from instella import canonical
from instella.errors import VerificationError
from instella.network.config import config_of, settings_of
from instella.network.device import device_of
from instella.network.network import Instella
from instella.network.shards import SINGLE, read_state

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def save_folder(
    folder: Path,
    network: Instella,
    tokenizer_folder: Path,
    max_positions: int,
    eos_id: int = 0,
    pad_id: int = 1,
    state: Mapping[str, Tensor] | None = None,
) -> None:
    """Write ``config.json``, ``generation_config.json``, the weights and the tokenizer.

    Args:
        folder: existing folder.
        network: all tensors of one dtype, kept as it is.
        tokenizer_folder: where the tokenizer's files are copied from.
        max_positions: ``max_position_embeddings`` of the folder.
        eos_id: end of text, also begin of text.
        pad_id: padding.
        state: the weights by name; None for those that the network holds.

    Raises:
        VerificationError: the tokenizer's files are not there, or dtypes are mixed.
    """
    state = network.state_dict() if state is None else state
    dtypes = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in state.values()})
    if len(dtypes) != 1:
        raise VerificationError(f"{folder}: tensors of {' and '.join(dtypes)} are mixed")
    settings = replace(network.settings, max_position_embeddings=max_positions)
    canonical.write_json(folder / "config.json", config_of(settings, dtypes[0], eos_id, pad_id))
    ids = {"bos_token_id": eos_id, "eos_token_id": eos_id, "pad_token_id": pad_id}
    canonical.write_json(folder / "generation_config.json", ids)
    canonical.write_safetensors(folder / SINGLE, state)
    for name in TOKENIZER_FILES:
        source = tokenizer_folder / name
        if not source.is_file():
            raise VerificationError(f"{source}: no such file; the folder needs its tokenizer")
        canonical.write_bytes(folder / name, source.read_bytes())


def load_folder(folder: Path, numerics: str) -> Instella:
    """The network of a folder, in the dtype of its tensors, on the device of the class.

    Nothing of the folder is executed; see ``read_state`` and ``settings_of`` for what is
    checked.

    Args:
        folder: as ``save_folder`` writes it, or a published one, sharded or not.
        numerics: numerics class.

    Raises:
        VerificationError: the folder is not what it should be.
        BadUse: unknown class, or no GPU of it.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise VerificationError(f"{path}: no such file; a folder with a checkpoint is needed")
    config = canonical.read_json(path)
    settings = settings_of(config, str(path))
    with torch.device("meta"):
        network = Instella(settings, numerics)
    shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
    state = read_state(folder, shapes)
    _check_dtype(config, str(path), next(iter(state.values())).dtype)
    network.load_state_dict(state, assign=True)
    return network.to(device_of(numerics))


def _check_dtype(config: dict[str, object], where: str, dtype: torch.dtype) -> None:
    found = str(dtype).removeprefix("torch.")
    for key in ("dtype", "torch_dtype"):
        if config.get(key) not in (None, found):
            raise VerificationError(f"{where}: {key} is {config[key]!r}, the tensors are {found}")
