"""Causal attention of each numerics class.

torch's fused attention serves every class: on a CPU its inner products go through MKL,
whose ``MKL_CBWR=COMPATIBLE`` branch gives the same bits everywhere but is slow. For
``portable-x86`` plain causal attention, as in training and scoring, is therefore made of
portable products, head by head, as long as a row of scores fits in one chain. Which of the
two computes depends on the call alone, never on the machine.
"""

import functools
import math
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from instella.errors import BadUse
from instella.network.product import CHUNK, chain
from instella.numerics import PORTABLE

SDPA, FLASH = "sdpa", "flash_attention_2"


class Documents:
    """Which tokens of packed rows belong together, as each kernel wants to know it.

    Positions go on over the edges: the rotary embedding knows only distances.

    Args:
        ids: int64 [B, T].
        eos_id: ends a document, and belongs to it.
    """

    def __init__(self, ids: Tensor, eos_id: int) -> None:
        self._ends = ids == eos_id

    def to(self, device: torch.device) -> "Documents":
        """Itself, for kernels on that device."""
        self._ends = self._ends.to(device)
        return self

    @functools.cached_property
    def mask(self) -> Tensor:
        """bool [B, 1, T, T], True where a query sees a key."""
        number = self._ends.cumsum(1) - self._ends.long()
        same = number[:, None, :, None] == number[:, None, None, :]
        return same.tril_()

    @functools.cached_property
    def offsets(self) -> Tensor:
        """int32 [documents + 1]: first tokens in the rows one after another, and their end."""
        first = self._ends.roll(1, 1)
        first[:, 0] = True
        starts = first.flatten().nonzero()[:, 0]
        return torch.cat([starts, starts.new_tensor([first.numel()])]).int()

    @functools.cached_property
    def longest(self) -> int:
        """Tokens of the longest document."""
        return int(self.offsets.diff().max())


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | Documents | None,
    numerics: str,
    kernel: str = SDPA,
) -> Tensor:
    """Attention of queries to keys, scaled by 1 / sqrt(d).

    Args:
        query: [B, heads, Tq, d].
        key, value: [B, heads, Tk, d].
        mask: bool [B, 1, Tq, Tk], True where a query sees a key; documents for causal
            attention within each; None for causal attention, where one query sees every key
            and several are as many as keys.
        numerics: numerics class.
        kernel: of causal attention without a cache.

    Returns:
        [B, heads, Tq, d].
    """
    length, width = query.shape[2:]
    causal = mask is None and length > 1
    if kernel == FLASH and not isinstance(mask, Tensor) and length > 1:
        return _flash(query, key, value, mask)
    if isinstance(mask, Documents):
        mask = mask.mask
    if causal and numerics == PORTABLE and length <= CHUNK and 2 <= width <= CHUNK:
        out: Tensor = _CausalAttention.apply(query, key, value)
        return out
    return nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal
    )


def require_kernel(kernel: str, width: int) -> None:
    """Check that a kernel is there and takes heads of ``width``.

    Raises:
        BadUse: it is not installed, or the heads are none of its (flash-attention's README:
            up to 256, by 8).
    """
    if kernel != FLASH:
        return
    if width % 8 or width > 256:
        raise BadUse(f"attention: {FLASH} takes heads up to 256 in steps of 8, not {width}")
    if find_spec("flash_attn") is None:
        raise BadUse(
            f"attention: {FLASH}: flash_attn is not installed here; run the stage in an image that "
            "has it, or write sdpa, which gives other bits"
        )


def _flash(query: Tensor, key: Tensor, value: Tensor, documents: Documents | None) -> Tensor:
    """flash-attention's causal kernels, which take [B, T, heads, d]; deterministic backward."""
    import flash_attn

    turned = [item.transpose(1, 2) for item in (query, key, value)]
    if documents is None:
        out = flash_attn.flash_attn_func(*turned, causal=True, deterministic=True)
        return out.transpose(1, 2)
    out = flash_attn.flash_attn_varlen_func(
        *(item.flatten(0, 1) for item in turned),
        cu_seqlens_q=documents.offsets,
        cu_seqlens_k=documents.offsets,
        max_seqlen_q=documents.longest,
        max_seqlen_k=documents.longest,
        causal=True,
        deterministic=True,
    )
    return out.view(turned[0].shape).transpose(1, 2)


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
