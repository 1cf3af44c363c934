"""A key-value cache of constant shape, for generation."""

import torch
from torch import Tensor

from instella.errors import BadUse
from instella.recipe.settings import Model


class StaticCache:
    """Keys and values of all layers, allocated once.

    Attention always sees ``length`` keys, so the shapes of a step depend neither on how
    far generation is nor on which sequences share the batch: the mask says which keys
    count.

    Args:
        settings: shape of the network.
        batch: sequences.
        length: keys kept for each sequence.
        dtype: of keys and values.
        device: where they lie.

    Attributes:
        offset: index of the next key to write; ``advance`` moves it.
    """

    def __init__(
        self,
        settings: Model,
        batch: int,
        length: int,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        heads = settings.num_attention_heads
        shape = (settings.num_hidden_layers, batch, heads, length, settings.hidden_size // heads)
        self.length = length
        self.offset = 0
        self._keys = torch.zeros(shape, dtype=dtype, device=device)
        self._values = torch.zeros(shape, dtype=dtype, device=device)

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Write [B, heads, T, d] at ``offset``; give all of the layer's keys and values.

        Returns:
            two views [B, heads, length, d]; what was never written is 0.

        Raises:
            BadUse: the cache is full.
        """
        end = self.offset + key.shape[2]
        if end > self.length:
            raise BadUse(f"key {end} does not fit in a cache of length {self.length}")
        self._keys[layer, :, :, self.offset : end] = key
        self._values[layer, :, :, self.offset : end] = value
        return self._keys[layer], self._values[layer]

    def advance(self, tokens: int) -> None:
        """Move ``offset`` after a forward pass of ``tokens`` tokens a sequence."""
        self.offset += tokens
