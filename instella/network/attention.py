"""Causal attention of each numerics class.

``scaled_dot_product`` is torch's fused attention. On a CPU its inner products go through
MKL, whose portable branch (``MKL_CBWR=COMPATIBLE``) is slow for whole sequences and quick
for single queries. ``portable_causal`` does a whole sequence with portable products, head
by head: about twice as fast there, and independent of MKL.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from instella.network.product import PORTABLE, chain_product


def attend(numerics: str, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of a numerics class, scaled by 1 / sqrt(head width).

    Args:
        numerics: numerics class.
        query: [B, heads, Tq, d].
        key: [B, heads, Tk, d].
        value: [B, heads, Tk, d].
        mask: bool, broadcast to [B, heads, Tq, Tk], True where a query sees a key; None
            for plain causal, with Tq = Tk.

    Returns:
        [B, heads, Tq, d].
    """
    if mask is None and numerics == PORTABLE:
        return portable_causal(query, key, value)
    return nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None
    )


def portable_causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Plain causal attention by portable products; float32 [B, heads, T, d] each."""
    out: Tensor = _PortableCausal.apply(query, key, value)
    return out


class _PortableCausal(torch.autograd.Function):
    """Keeps the probabilities [B * heads, T, T] for the backward pass."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        length, width = query.shape[-2:]
        ctx.scale = 1.0 / math.sqrt(width)
        heads_query, heads_key, heads_value = (_by_head(x) for x in (query, key, value))
        scores = _products(heads_query, heads_key)
        future = torch.full((length, length), -math.inf).triu_(1)
        probabilities = torch.add(future, scores, alpha=ctx.scale).softmax(-1)
        out = _products(probabilities, heads_value.transpose(1, 2))
        ctx.save_for_backward(heads_query, heads_key, heads_value, probabilities)
        return out.view(query.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value, probabilities = ctx.saved_tensors
        gradient = _by_head(gradients[0])
        # A left operand that is a transposed view gets copied: the small one stands there.
        to_value = _products(gradient.transpose(1, 2), probabilities.transpose(1, 2))
        to_probabilities = _products(gradient, value)
        to_scores = torch._softmax_backward_data(
            to_probabilities, probabilities, -1, torch.float32
        ).mul_(ctx.scale)
        to_query = _products(to_scores, key.transpose(1, 2))
        to_key = _products(query.transpose(1, 2), to_scores.transpose(1, 2))
        batch = gradients[0].shape[:2]
        return (
            to_query.unflatten(0, batch),
            to_key.transpose(1, 2).unflatten(0, batch),
            to_value.transpose(1, 2).unflatten(0, batch),
        )


def _by_head(x: Tensor) -> Tensor:
    """[B, heads, T, d] -> [B * heads, T, d], contiguous."""
    return x.reshape(-1, *x.shape[-2:]).contiguous()


def _products(left: Tensor, right: Tensor) -> Tensor:
    """[G, M, K] x [G, N, K] -> [G, M, N], one portable product for each G."""
    return torch.stack(
        [
            chain_product(a, b)
            for a, b in zip(left.contiguous().unbind(0), right.unbind(0), strict=True)
        ]
    )
