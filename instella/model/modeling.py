"""Instella as a transformers model over the modules of ``instella.network``."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from instella.errors import BadUse
from instella.model.configuration import InstellaConfig
from instella.network.network import Decoder
from instella.network.product import Linear

# The class is for use beside transformers' own models; recorded results come from
# instella.network in the numerics class of their recipe.
_NUMERICS = "native-cpu"


class Body(Decoder):
    """Everything but the head, called as transformers calls a model without its head."""

    def __init__(self, config: InstellaConfig) -> None:
        super().__init__(config.settings(), _NUMERICS)
        self.config = config

    # transformers' arguments, which are other ones than those of the decoder
    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Final, normed states [B, T, width]; see ``InstellaForCausalLM.forward``.

        Raises:
            BadUse: both or none of the inputs, or attention weights are asked for.
        """
        if kwargs.pop("output_attentions", False):
            raise BadUse("Instella: fused attention has no weights to give")
        if (input_ids is None) == (inputs_embeds is None):
            raise BadUse("Instella: give either input_ids or inputs_embeds")
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if cache is None and (self.config.use_cache if use_cache is None else use_cache):
            cache = DynamicCache(config=self.config)
        if position_ids is None:
            past = 0 if cache is None else cache.get_seq_length()
            position_ids = torch.arange(past, past + x.shape[1], device=x.device)[None]
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=x,
            attention_mask=attention_mask,
            cache=cache,
            position_ids=position_ids,
        )
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        states: list[Tensor] | None = [] if output_hidden_states else None
        last = self.forward_embedded(x, position_ids, mask, cache, states)
        hidden = None if states is None else (*states, last)
        return BaseModelOutputWithPast(last_hidden_state=last, cache=cache, hidden_states=hidden)


class InstellaForCausalLM(PreTrainedModel, GenerationMixin):
    """The language model with its head; fused attention only."""

    config_class = InstellaConfig
    base_model_prefix = "model"
    _no_split_modules = ["Layer"]  # noqa: RUF012, as the base class declares it
    _supports_sdpa = True

    def __init__(self, config: InstellaConfig) -> None:
        super().__init__(config)
        self.model = Body(config)
        settings = self.model.settings
        self.lm_head = Linear(settings.hidden_size, settings.vocab_size, _NUMERICS)
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
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Logits, and what else is asked for.

        Args:
            input_ids: int64 [B, T]; or ``inputs_embeds`` [B, T, width].
            attention_mask: [B, keys], 1 for a token and 0 for padding, on either side.
            position_ids: int64 [B, T]; by default they go on from the cache.
            cache: transformers' cache of keys and values.
            labels: int64 [B, T], -100 where there is none; the loss is the mean
                cross-entropy of each next token that has a label.
            use_cache: keep keys and values; the configuration decides if it is None.
            output_hidden_states: give the embedding's output, that of every layer but
                the last, and the final normed states.
            logits_to_keep: only the last so many positions, or those of an index; 0: all.
            return_dict: False for a plain tuple; the configuration decides if it is None.
            kwargs: for the loss, such as ``num_items_in_batch``.

        Raises:
            BadUse: both or none of the inputs, or attention weights are asked for.
        """
        made = self.model(
            input_ids, attention_mask, position_ids, cache, inputs_embeds, use_cache,
            output_hidden_states, output_attentions=kwargs.pop("output_attentions", False),
        )  # fmt: skip
        last = made.last_hidden_state
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(last[:, keep])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **kwargs)
        output = CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            cache=made.cache,
            hidden_states=made.hidden_states,
        )
        as_output = self.config.return_dict if return_dict is None else return_dict
        return output if as_output else output.to_tuple()
