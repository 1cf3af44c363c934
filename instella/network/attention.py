"""Causal attention of each numerics class.

torch's fused attention serves every class: on a CPU its inner products go through MKL,
whose ``MKL_CBWR=COMPATIBLE`` branch gives the same bits everywhere but is slow. For
``portable-x86`` plain causal attention, as in training and scoring, is therefore made of
portable products, head by head, as long as a row of scores fits in one chain. Which of the
two computes depends on the call alone, never on the machine.
"""

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn

from instella.network.product import CHUNK, chain
from instella.numerics import PORTABLE


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, numerics: str) -> Tensor:
    """Attention of queries to keys, scaled by 1 / sqrt(d).

    Args:
        query: [B, heads, Tq, d].
        key, value: [B, heads, Tk, d].
        mask: bool [B, 1, Tq, Tk], True where a query sees a key; None for causal
            attention, where one query sees every key and several are as many as keys.
        numerics: numerics class.

    Returns:
        [B, heads, Tq, d].
    """
    length, width = query.shape[2:]
    causal = mask is None and length > 1
    if causal and numerics == PORTABLE and length <= CHUNK and 2 <= width <= CHUNK:
        out: Tensor = _CausalAttention.apply(query, key, value)
        return out
    return nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal
    )


class _CausalAttention(torch.autograd.Function):
    """Keeps the probabilities, B * heads * T * T numbers.

    What stands left in a product has to be contiguous and is copied for all heads at once;
    what stands right may be a transposed view.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scale = 1.0 / math.sqrt(query.shape[3])
        queries = _heads(query) * scale
        keys, values = _heads(key), _heads(value)
        scores = torch.stack([chain(q, k) for q, k in zip(queries, keys, strict=True)])
        probabilities = torch.softmax(scores.add_(_future(query.shape[2])), -1)
        out = [chain(p, v.t()) for p, v in zip(probabilities, values, strict=True)]
        ctx.save_for_backward(queries, keys, values, probabilities)
        ctx.scale = scale
        return torch.stack(out).view(query.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values, probabilities = ctx.saved_tensors
        gradient = _heads(gradients[0])
        turned_gradient = gradient.transpose(1, 2).contiguous()
        turned_queries = queries.transpose(1, 2).contiguous()
        to_scores = torch._softmax_backward_data(
            torch.stack([chain(g, v) for g, v in zip(gradient, values, strict=True)]),
            probabilities,
            -1,
            torch.float32,
        )
        to_query, to_key, to_value = [], [], []
        for p, s, g, q, k in zip(
            probabilities, to_scores, turned_gradient, turned_queries, keys, strict=True
        ):
            to_query.append(chain(s, k.t()))
            to_key.append(chain(q, s.t()))
            to_value.append(chain(g, p.t()))
        shape = gradients[0].shape
        return (
            torch.stack(to_query).mul_(ctx.scale).view(shape),
            _turned_back(to_key, shape),
            _turned_back(to_value, shape),
        )


@functools.lru_cache(maxsize=8)
def _future(length: int) -> Tensor:
    """[T, T] to add to scores: minus infinity where a key comes after its query."""
    return torch.full((length, length), -math.inf).triu_(1)


def _heads(x: Tensor) -> Tensor:
    """[B, heads, T, d] -> contiguous [B * heads, T, d]."""
    return x.reshape(-1, *x.shape[2:]).contiguous()


def _turned_back(turned: list[Tensor], shape: torch.Size) -> Tensor:
    """B * heads of [d, T] -> [B, heads, T, d], a view."""
    return torch.stack(turned).view(*shape[:2], shape[3], shape[2]).transpose(2, 3)
