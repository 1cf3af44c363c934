"""``config.json`` of a published folder: its keys, and the settings they stand for."""

import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from instella.errors import VerificationError
from instella.recipe.settings import Model

ARCHITECTURE = "InstellaForCausalLM"
MODEL_TYPE = "instella"

# What every Instella checkpoint has; a folder that says otherwise needs another network.
_FIXED: dict[str, Any] = {
    "model_type": MODEL_TYPE,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "rope_scaling": None,
}
# Layers are built before the tensors are counted; the published networks have 36.
_MAX_LAYERS = 1024
_INTEGERS = [field.name for field in fields(Model) if field.type in (int, "int")]


def config_of(settings: Model, dtype: str, eos_id: int, pad_id: int) -> dict[str, Any]:
    """Content of ``config.json``.

    Args:
        settings: shape of the network.
        dtype: of the tensors, such as ``float32``.
        eos_id: end of text, also begin of text.
        pad_id: padding.
    """
    return {
        **_FIXED,
        **{field.name: getattr(settings, field.name) for field in fields(Model)},
        "num_key_value_heads": settings.num_attention_heads,
        "architectures": [ARCHITECTURE],
        "dtype": dtype,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": eos_id,
        "eos_token_id": eos_id,
        "pad_token_id": pad_id,
    }


def settings_of(config: Any, where: str) -> Model:
    """Shape of the network that ``config`` describes.

    Read are the published keys (``rope_theta``, ``rope_scaling``) and those that
    transformers 5 writes (``rope_parameters``). Keys without a meaning for the network,
    ``auto_map`` among them, are neither needed nor used.

    Args:
        config: content of ``config.json``.
        where: names it in errors.

    Raises:
        VerificationError: not an Instella configuration, or one this network cannot be.
    """
    if not isinstance(config, Mapping):
        raise VerificationError(f"{where}: a JSON object is needed")
    if config.get("architectures") not in (None, [ARCHITECTURE]):
        raise VerificationError(
            f"{where}: architectures is {config['architectures']!r}; only [{ARCHITECTURE!r}] "
            "can be read"
        )
    flat = _with_flat_rope(config, where)
    for key, wanted in _FIXED.items():
        found = flat.get(key, None if key == "model_type" else wanted)
        if found != wanted:
            raise VerificationError(f"{where}: {key} is {found!r}; this network needs {wanted!r}")
    shape = {name: _integer(flat, name, where) for name in _INTEGERS}
    if shape["num_hidden_layers"] > _MAX_LAYERS:
        raise VerificationError(f"{where}: num_hidden_layers is more than {_MAX_LAYERS}")
    if flat.get("num_key_value_heads") not in (None, shape["num_attention_heads"]):
        raise VerificationError(f"{where}: num_key_value_heads must equal num_attention_heads")
    return Model(
        **shape,
        rope_theta=_positive(flat, "rope_theta", where),
        rms_norm_eps=_positive(flat, "rms_norm_eps", where),
    )


def _with_flat_rope(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    flat = dict(config)
    rope = flat.pop("rope_parameters", None)
    if rope is None:
        return flat
    if not isinstance(rope, Mapping) or rope.get("rope_type", "default") != "default":
        raise VerificationError(f"{where}: rope_parameters {rope!r}: only rope_type default")
    if set(rope) - {"rope_type", "rope_theta"}:
        raise VerificationError(f"{where}: rope_parameters {rope!r}: only rope_theta is known")
    theta = rope.get("rope_theta", flat.get("rope_theta"))
    if flat.setdefault("rope_theta", theta) != theta:
        raise VerificationError(f"{where}: rope_theta and rope_parameters disagree")
    return flat


def _integer(config: Mapping[str, Any], key: str, where: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
        raise VerificationError(f"{where}: {key} is {value!r}; a whole number from 1 is needed")
    return value


def _positive(config: Mapping[str, Any], key: str, where: str) -> float:
    value = config.get(key)
    if (
        not isinstance(value, (int, float))
        or isinstance(value, bool)
        or not 0 < value <= sys.float_info.max
    ):
        raise VerificationError(f"{where}: {key} is {value!r}; a positive number is needed")
    return float(value)
