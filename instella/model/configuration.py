"""Configuration of Instella for transformers; defaults are the published 3B's."""

from typing import Any, ClassVar

from transformers import PreTrainedConfig

from instella.network.config import MODEL_TYPE, settings_of
from instella.recipe.settings import Model


class InstellaConfig(PreTrainedConfig):
    """Keys as in the published ``config.json``; see ``network.config`` for what is fixed."""

    model_type = MODEL_TYPE
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache"]

    vocab_size: int = 50304
    hidden_size: int = 2560
    intermediate_size: int = 6912
    num_hidden_layers: int = 36
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 4096
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-5
    use_cache: bool = True
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 0
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0

    def __post_init__(self, **kwargs: Any) -> None:
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        super().__post_init__(**kwargs)

    def settings(self) -> Model:
        """Shape of the network; VerificationError where it is none of this network's."""
        return settings_of(self.to_dict(), "InstellaConfig")
