"""Instella for the transformers below 5.11 that verl takes.

``instella.model`` is written for the kit's transformers, which calls a cache otherwise. Here
attention goes through transformers' table of implementations, so that flash attention takes
rows without padding, and layers can be computed again in the backward pass.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from instella.model.configuration import InstellaConfig
from instella.network.network import MLP, Attention, Decoder, Layer, RMSNorm, Rope
from instella.network.product import Linear, project
from instella.network.rope import rope_table, rotate
from instella.recipe.settings import Model

# Plain torch products; the class of the numbers is that of the machine.
NUMERICS = "native-cpu"


@dataclass(frozen=True)
class Seen:
    """What a query sees: the mask of the chosen attention, and words for its implementation."""

    mask: Any
    words: dict[str, Any]


class TableAttention(Attention):
    """Attention by the implementation that the configuration names."""

    is_causal = True

    def __init__(self, config: InstellaConfig, settings: Model, layer: int) -> None:
        super().__init__(settings, NUMERICS, layer)
        self.config = config
        self.layer_idx = layer
        self.scaling = (settings.hidden_size // settings.num_attention_heads) ** -0.5

    def forward(  # type: ignore[override]
        self, x: Tensor, rope: Rope, seen: Seen, cache: Cache | None
    ) -> Tensor:
        """``x [B, T, width] -> [B, T, width]``."""
        heads = (*x.shape[:-1], self.heads, -1)
        query, key, value = project(x, self.q_proj, self.k_proj, self.v_proj)
        query = rotate(self.q_norm(query).view(heads), *rope).transpose(1, 2)
        key = rotate(self.k_norm(key).view(heads), *rope).transpose(1, 2)
        value = value.view(heads).transpose(1, 2)
        if cache is not None:
            key, value = cache.update(key, value, self.layer)
        attend = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        out, _ = attend(
            self, query, key, value, seen.mask, dropout=0.0, scaling=self.scaling, **seen.words
        )
        return self.o_proj(out.reshape(x.shape))


class TableLayer(GradientCheckpointingLayer, Layer):
    """One pre-norm layer."""

    def __init__(self, config: InstellaConfig, settings: Model, layer: int) -> None:
        nn.Module.__init__(self)
        self.self_attn = TableAttention(config, settings, layer)
        self.mlp = MLP(settings, NUMERICS)
        self.pre_attention_layernorm = RMSNorm(settings.hidden_size, settings.rms_norm_eps)
        self.pre_feedforward_layernorm = RMSNorm(settings.hidden_size, settings.rms_norm_eps)


class PackedDecoder(Decoder):
    """A row may hold several sequences, so it may be longer than any position."""

    def rope(self, x: Tensor, positions: Tensor | None) -> Rope:
        """As the base class; a position beyond the limit is an index that torch refuses."""
        if positions is None:
            return super().rope(x, None)
        settings = self.settings
        width = settings.hidden_size // settings.num_attention_heads
        limit = settings.max_position_embeddings
        cosine, sine = rope_table(limit, width, settings.rope_theta, str(x.device))
        return cosine[positions].unsqueeze(-2), sine[positions].unsqueeze(-2)


class InstellaForCausalLM(PreTrainedModel, GenerationMixin):
    """The language model with its head; names of the tensors as published."""

    config_class = InstellaConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["TableLayer"]  # noqa: RUF012, as the base class declares it
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True

    def __init__(self, config: InstellaConfig) -> None:
        super().__init__(config)
        settings = config.settings()
        self.model = PackedDecoder(settings, NUMERICS)
        self.model.layers = nn.ModuleList(
            TableLayer(config, settings, layer) for layer in range(settings.num_hidden_layers)
        )
        self.lm_head = Linear(settings.hidden_size, settings.vocab_size, NUMERICS)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The embedding of the tokens."""
        return self.model.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding of the tokens."""
        self.model.embed_tokens = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits.

        Args:
            input_ids: int64 [B, T]; or ``inputs_embeds`` [B, T, width].
            attention_mask: [B, keys], 1 for a token; None for rows without padding, which
                may hold several sequences, each beginning at position 0.
            position_ids: int64 [B, T]; by default they go on from the cache.
            past_key_values: transformers' cache of keys and values.
            use_cache: keep keys and values.
            logits_to_keep: only the last so many positions, or those of an index; 0: all.
            kwargs: for the implementation of attention.
        """
        x = self.model.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if past_key_values is None and use_cache:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None:
            past = 0 if past_key_values is None else past_key_values.get_seq_length()
            position_ids = torch.arange(past, past + x.shape[1], device=x.device)[None]
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=x,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_ids=position_ids,
        )
        seen: Any = Seen(mask, {**kwargs, "position_ids": position_ids})
        last = self.model.forward_embedded(x, position_ids, seen, past_key_values)
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        words = {"logits": self.lm_head(last[:, keep]), "past_key_values": past_key_values}
        return CausalLMOutputWithPast(**words)


# In place of the class that ``instella.model`` has just registered with the same configuration.
AutoModelForCausalLM.register(InstellaConfig, InstellaForCausalLM, exist_ok=True)
