"""Names and layout of OLMo-style training checkpoints, there and back.

There, a layer's queries, keys and values are one matrix ``att_proj`` (rows in that
order), and the SwiGLU's two are one matrix ``ff_proj``: **up first, gate second** (recipe
facts A; the training code applies the activation to the second half). The halves have
equal shapes, so only logits can show that they were swapped.

Vocabulary: the training network has ``embedding_size`` rows, the vocabulary padded to a
multiple of 128, and all of them are kept; the published ``vocab_size`` is that number.
"""

import torch
from torch import Tensor

from instella.errors import VerificationError

State = dict[str, Tensor]

_OUTER = {
    "transformer.wte.weight": "model.embed_tokens.weight",
    "transformer.ln_f.weight": "model.norm.weight",
    "transformer.ff_out.weight": "lm_head.weight",
}
_INNER = {
    "attn_out": "self_attn.o_proj",
    "ff_out": "mlp.down_proj",
    "attn_norm": "pre_attention_layernorm",
    "ff_norm": "pre_feedforward_layernorm",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
}
_STACKED = {
    "att_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "ff_proj": ("mlp.up_proj", "mlp.gate_proj"),
}


def to_olmo(state: State, layers: int) -> State:
    """Training layout of a published state dict.

    Args:
        state: names as in the published checkpoints.
        layers: number of layers.

    Raises:
        VerificationError: a tensor is missing or does not belong there.
    """
    left = dict(state)
    result = {there: _take(left, here) for there, here in _OUTER.items()}
    for layer in range(layers):
        here, there = f"model.layers.{layer}", f"transformer.blocks.{layer}"
        for name, ours in _INNER.items():
            result[f"{there}.{name}.weight"] = _take(left, f"{here}.{ours}.weight")
        for name, parts in _STACKED.items():
            rows = [_take(left, f"{here}.{part}.weight") for part in parts]
            result[f"{there}.{name}.weight"] = torch.cat(rows)
    _refuse_rest(left)
    return result


def from_olmo(state: State, layers: int) -> State:
    """Published layout of a training state dict; the inverse of ``to_olmo``.

    Args:
        state: names as in an unsharded training checkpoint.
        layers: number of layers.

    Raises:
        VerificationError: a tensor is missing, does not belong there, or cannot be cut.
    """
    left = dict(state)
    result = {here: _take(left, there) for there, here in _OUTER.items()}
    for layer in range(layers):
        here, there = f"model.layers.{layer}", f"transformer.blocks.{layer}"
        for name, ours in _INNER.items():
            result[f"{here}.{ours}.weight"] = _take(left, f"{there}.{name}.weight")
        for name, parts in _STACKED.items():
            stacked = f"{there}.{name}.weight"
            for part, rows in zip(parts, _cut(left, stacked, len(parts)), strict=True):
                result[f"{here}.{part}.weight"] = rows
    _refuse_rest(left)
    return result


def _take(left: State, name: str) -> Tensor:
    if name not in left:
        raise VerificationError(f"conversion: the checkpoint has no tensor {name}")
    return left.pop(name)


def _cut(left: State, name: str, parts: int) -> list[Tensor]:
    stacked = _take(left, name)
    if stacked.shape[0] % parts:
        raise VerificationError(f"conversion: {name}: {stacked.shape[0]} rows in {parts} parts")
    return [rows.clone() for rows in stacked.chunk(parts)]


def _refuse_rest(left: State) -> None:
    if left:
        raise VerificationError(
            f"conversion: {len(left)} tensors without a place, as {min(left)}; is the number "
            "of layers right?"
        )
