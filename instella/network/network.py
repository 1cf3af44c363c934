"""Instella as plain torch modules (recipe facts A).

Pre-norm decoder: RMSNorm before attention and before the SwiGLU, RMSNorm over the whole
width of queries and keys before they are split into heads and rotated, no biases, untied
head. Names and shapes of the parameters are those of the published checkpoints.
Shapes: B sequences, T tokens, V vocabulary, d width of a head.
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from instella.errors import BadUse
from instella.network.attention import SDPA, Documents, attend, require_kernel
from instella.network.product import Linear, project
from instella.network.rope import rope_table, rotate
from instella.recipe.settings import Model

Rope = tuple[Tensor, Tensor]
Mask = Tensor | Documents | None


class Cache(Protocol):
    """Keeps the keys and values of earlier tokens."""

    def update(self, key: Tensor, value: Tensor, layer: int, /) -> tuple[Tensor, Tensor]:
        """Take in [B, heads, T, d] each; give all keys and values to attend to."""
        ...


class RMSNorm(nn.Module):
    """``x / sqrt(mean(x * x) + eps)`` in float32, cast back, times the weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        normed = nn.functional.rms_norm(x.float(), self.weight.shape, None, self.eps)
        return normed.to(x.dtype) * self.weight


class Attention(nn.Module):
    """Multi-head causal attention with normalized queries and keys."""

    def __init__(self, settings: Model, numerics: str, layer: int) -> None:
        super().__init__()
        width = settings.hidden_size
        self.q_proj = Linear(width, width, numerics)
        self.k_proj = Linear(width, width, numerics)
        self.v_proj = Linear(width, width, numerics)
        self.o_proj = Linear(width, width, numerics)
        self.q_norm = RMSNorm(width, settings.rms_norm_eps)
        self.k_norm = RMSNorm(width, settings.rms_norm_eps)
        self.heads = settings.num_attention_heads
        self.numerics = numerics
        self.kernel = SDPA
        self.layer = layer

    def forward(self, x: Tensor, rope: Rope, mask: Mask, cache: Cache | None) -> Tensor:
        """``x [B, T, width] -> [B, T, width]``."""
        heads = (*x.shape[:-1], self.heads, -1)
        query, key, value = project(x, self.q_proj, self.k_proj, self.v_proj)
        query = rotate(self.q_norm(query).view(heads), *rope).transpose(1, 2)
        key = rotate(self.k_norm(key).view(heads), *rope).transpose(1, 2)
        value = value.view(heads).transpose(1, 2)
        if cache is not None:
            key, value = cache.update(key, value, self.layer)
        out = attend(query, key, value, mask, self.numerics, self.kernel)
        return self.o_proj(out.transpose(1, 2).reshape(x.shape))


class MLP(nn.Module):
    """SwiGLU: ``down(silu(gate(x)) * up(x))``."""

    def __init__(self, settings: Model, numerics: str) -> None:
        super().__init__()
        self.gate_proj = Linear(settings.hidden_size, settings.intermediate_size, numerics)
        self.up_proj = Linear(settings.hidden_size, settings.intermediate_size, numerics)
        self.down_proj = Linear(settings.intermediate_size, settings.hidden_size, numerics)

    def forward(self, x: Tensor) -> Tensor:
        """``x [B, T, width] -> [B, T, width]``."""
        gate, up = project(x, self.gate_proj, self.up_proj)
        return self.down_proj(nn.functional.silu(gate) * up)


class Layer(nn.Module):
    """One pre-norm layer."""

    def __init__(self, settings: Model, numerics: str, layer: int) -> None:
        super().__init__()
        self.self_attn = Attention(settings, numerics, layer)
        self.mlp = MLP(settings, numerics)
        self.pre_attention_layernorm = RMSNorm(settings.hidden_size, settings.rms_norm_eps)
        self.pre_feedforward_layernorm = RMSNorm(settings.hidden_size, settings.rms_norm_eps)

    def forward(self, x: Tensor, rope: Rope, mask: Mask, cache: Cache | None) -> Tensor:
        """``x [B, T, width] -> [B, T, width]``."""
        x = x + self.self_attn(self.pre_attention_layernorm(x), rope, mask, cache)
        return x + self.mlp(self.pre_feedforward_layernorm(x))


class Decoder(nn.Module):
    """Embedding, layers and final norm: everything but the head.

    Args:
        settings: shape of the network.
        numerics: numerics class of the products.
    """

    def __init__(self, settings: Model, numerics: str) -> None:
        super().__init__()
        _check(settings)
        self.settings = settings
        self.embed_tokens = nn.Embedding(settings.vocab_size, settings.hidden_size)
        self.layers = nn.ModuleList(
            Layer(settings, numerics, layer) for layer in range(settings.num_hidden_layers)
        )
        self.norm = RMSNorm(settings.hidden_size, settings.rms_norm_eps)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor | None = None,
        mask: Mask = None,
        cache: Cache | None = None,
        states: list[Tensor] | None = None,
    ) -> Tensor:
        """Final, normed states [B, T, width]; see ``Instella.forward``.

        Args:
            states: takes the embedding's output and each layer's input after it.
        """
        device = self.embed_tokens.weight.device
        if positions is not None:
            positions = positions.to(device)
        if mask is not None:
            mask = mask.to(device)
        x = self.embed_tokens(input_ids.to(device))
        return self.forward_embedded(x, positions, mask, cache, states)

    def forward_embedded(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        mask: Mask = None,
        cache: Cache | None = None,
        states: list[Tensor] | None = None,
    ) -> Tensor:
        """As ``forward``, from embeddings [B, T, width]."""
        rope = self.rope(x, positions)
        for layer in self.layers:
            if states is not None:
                states.append(x)
            x = layer(x, rope, mask, cache)
        return self.norm(x)

    def rope(self, x: Tensor, positions: Tensor | None) -> Rope:
        """Cosine and sine for ``x [B, T, width]``, each [T, 1, d] or [B, T, 1, d]."""
        settings = self.settings
        limit = settings.max_position_embeddings
        if x.shape[1] > limit:
            raise BadUse(
                f"a sequence of {x.shape[1]} tokens is longer than max_position_embeddings "
                f"{limit}; shorten it or raise the setting"
            )
        width = settings.hidden_size // settings.num_attention_heads
        cosine, sine = rope_table(limit, width, settings.rope_theta, str(x.device))
        rows = slice(x.shape[1]) if positions is None else positions
        return cosine[rows].unsqueeze(-2), sine[rows].unsqueeze(-2)


class Instella(nn.Module):
    """The language model.

    Args:
        settings: shape of the network.
        numerics: numerics class: portable-x86, native-cpu, gfx942 or sm90.

    Raises:
        BadUse: a shape that cannot be, or an unknown class.
    """

    def __init__(self, settings: Model, numerics: str) -> None:
        super().__init__()
        self.settings = settings
        self.numerics = numerics
        self.model = Decoder(settings, numerics)
        self.lm_head = Linear(settings.hidden_size, settings.vocab_size, numerics)

    def attend_by(self, kernel: str) -> None:
        """Let passes without a cache compute attention by another kernel.

        Raises:
            BadUse: it is not there, or cannot take the width of these heads.
        """
        settings = self.settings
        require_kernel(kernel, settings.hidden_size // settings.num_attention_heads)
        for module in self.modules():
            if isinstance(module, Attention):
                module.kernel = kernel

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor | None = None,
        mask: Mask = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Logits of the next token.

        Args:
            input_ids: int64 [B, T]; inputs may lie on any device, what is given back lies on
                the network's.
            positions: int64 [T] or [B, T], below ``max_position_embeddings``; None for
                0 .. T-1.
            mask: bool [B, 1, Tq, Tk], True where a query sees a key; or the documents
                within which causal attention stays; None for plain causal attention among
                the T tokens. With a cache it is needed, unless
                the one query of each sequence sees every key.
            cache: earlier keys and values.

        Returns:
            [B, T, V].

        Raises:
            BadUse: more tokens than ``max_position_embeddings``.
        """
        return self.lm_head(self.hidden(input_ids, positions, mask, cache))

    def hidden(
        self,
        input_ids: Tensor,
        positions: Tensor | None = None,
        mask: Mask = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Final, normed states [B, T, width]: what ``lm_head`` projects; as ``forward``."""
        return self.model(input_ids, positions, mask, cache)


def _check(settings: Model) -> None:
    width, heads = settings.hidden_size, settings.num_attention_heads
    if width % heads or (width // heads) % 2:
        raise BadUse(
            f"model: hidden_size {width} must be num_attention_heads {heads} times an even number"
        )
