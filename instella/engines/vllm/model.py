"""Instella as a model of vLLM.

Imported by vLLM in its own environment. Names of the parameters are those of the published
checkpoints, so weights load as they stand. Shapes: N tokens of all running requests, one
behind the other, as vLLM hands them over.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.distributed import get_pp_group, get_tensor_model_parallel_world_size
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.linear import ReplicatedLinear
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.models.utils import AutoWeightsLoader, maybe_prefix
from vllm.sequence import IntermediateTensors

from instella.network.network import RMSNorm, Rope
from instella.network.rope import rope_table, rotate
from instella.recipe.settings import Model


class InstellaAttention(nn.Module):
    """Attention over vLLM's cache; queries and keys are normalized over the whole width."""

    def __init__(self, settings: Model, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        width, self.heads = settings.hidden_size, settings.num_attention_heads
        self.q_proj = _linear(width, width, f"{prefix}.q_proj")
        self.k_proj = _linear(width, width, f"{prefix}.k_proj")
        self.v_proj = _linear(width, width, f"{prefix}.v_proj")
        self.o_proj = _linear(width, width, f"{prefix}.o_proj")
        self.q_norm = RMSNorm(width, settings.rms_norm_eps)
        self.k_norm = RMSNorm(width, settings.rms_norm_eps)
        head = width // self.heads
        self.attn = Attention(
            self.heads, head, head**-0.5, num_kv_heads=self.heads,
            cache_config=vllm_config.cache_config, prefix=f"{prefix}.attn",
        )  # fmt: skip

    def forward(self, x: Tensor, rope: Rope) -> Tensor:
        """``x [N, width] -> [N, width]``."""
        query = self._turned(self.q_norm(self.q_proj(x)), rope)
        key = self._turned(self.k_norm(self.k_proj(x)), rope)
        out: Tensor = self.o_proj(self.attn(query, key, self.v_proj(x)))
        return out

    def _turned(self, x: Tensor, rope: Rope) -> Tensor:
        return rotate(x.view(x.shape[0], self.heads, -1), *rope).view(x.shape)


class InstellaMLP(nn.Module):
    """SwiGLU."""

    def __init__(self, settings: Model, prefix: str) -> None:
        super().__init__()
        width, inner = settings.hidden_size, settings.intermediate_size
        self.gate_proj = _linear(width, inner, f"{prefix}.gate_proj")
        self.up_proj = _linear(width, inner, f"{prefix}.up_proj")
        self.down_proj = _linear(inner, width, f"{prefix}.down_proj")

    def forward(self, x: Tensor) -> Tensor:
        """``x [N, width] -> [N, width]``."""
        out: Tensor = self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class InstellaLayer(nn.Module):
    """One pre-norm layer."""

    def __init__(self, settings: Model, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        self.self_attn = InstellaAttention(settings, vllm_config, f"{prefix}.self_attn")
        self.mlp = InstellaMLP(settings, f"{prefix}.mlp")
        self.pre_attention_layernorm = RMSNorm(settings.hidden_size, settings.rms_norm_eps)
        self.pre_feedforward_layernorm = RMSNorm(settings.hidden_size, settings.rms_norm_eps)

    def forward(self, x: Tensor, rope: Rope) -> Tensor:
        """``x [N, width] -> [N, width]``."""
        x = x + self.self_attn(self.pre_attention_layernorm(x), rope)
        return x + self.mlp(self.pre_feedforward_layernorm(x))


class InstellaDecoder(nn.Module):
    """Embedding, layers and final norm."""

    def __init__(self, settings: Model, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        self.settings = settings
        self.embed_tokens = VocabParallelEmbedding(settings.vocab_size, settings.hidden_size)
        self.layers = nn.ModuleList(
            InstellaLayer(settings, vllm_config, f"{prefix}.layers.{number}")
            for number in range(settings.num_hidden_layers)
        )
        self.norm = RMSNorm(settings.hidden_size, settings.rms_norm_eps)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Embeddings ``x [N, width]`` at ``positions [N]`` to final states."""
        settings = self.settings
        width = settings.hidden_size // settings.num_attention_heads
        cosine, sine = rope_table(
            settings.max_position_embeddings, width, settings.rope_theta, str(x.device)
        )
        rope = cosine[positions].unsqueeze(-2), sine[positions].unsqueeze(-2)
        for layer in self.layers:
            x = layer(x, rope)
        out: Tensor = self.norm(x)
        return out


class InstellaForCausalLM(nn.Module):
    """The language model; vLLM calls its methods.

    Raises:
        ValueError: asked to be split over several devices, which the norm over the whole width
            of queries and keys does not allow without more exchange.
    """

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        if get_tensor_model_parallel_world_size() > 1 or get_pp_group().world_size > 1:
            raise ValueError(
                "Instella runs on one device a server: leave tensor_parallel_size at 1"
            )
        settings = vllm_config.model_config.hf_config.settings()
        self.model = InstellaDecoder(settings, vllm_config, maybe_prefix(prefix, "model"))
        self.lm_head = ParallelLMHead(
            settings.vocab_size, settings.hidden_size, prefix=maybe_prefix(prefix, "lm_head")
        )
        self.logits_processor = LogitsProcessor(settings.vocab_size)

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """``[N] -> [N, width]``."""
        out: Tensor = self.model.embed_tokens(input_ids)
        return out

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """Final states ``[N, width]`` of tokens, or of embeddings in their place."""
        if inputs_embeds is None:
            assert input_ids is not None
            inputs_embeds = self.embed_input_ids(input_ids)
        out: Tensor = self.model(inputs_embeds, positions)
        return out

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        """``[N, width] -> [N, V]``."""
        logits: Tensor | None = self.logits_processor(self.lm_head, hidden_states)
        return logits

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load every parameter; the names that were loaded."""
        loaded: set[str] = AutoWeightsLoader(self).load_weights(weights)
        return loaded


def _linear(into: int, out: int, prefix: str) -> Any:
    return ReplicatedLinear(into, out, bias=False, return_bias=False, prefix=prefix)
