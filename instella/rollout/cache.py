"""Keys and values of a batch of rows, in buffers of one fixed length."""

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]


class RowCache:
    """A ``network.Cache`` whose every length is given beforehand.

    A prompt is taken in at once and attends to itself only; each later token is written
    behind it and attends to the whole buffer under a mask, so no shape ever changes; or,
    which is faster, only to what was written.

    Args:
        length: tokens of a row, prompt and response.
        whole: later tokens attend to the whole buffer.
    """

    def __init__(self, length: int, whole: bool = True) -> None:
        self.length = length
        self._whole = whole
        self.used = 0
        self._layers: list[Pair] = []

    def update(self, key: Tensor, value: Tensor, layer: int, /) -> Pair:
        """Keep [B, heads, T, d] each; keys and values to attend to.

        The first call of a layer returns what it was given; later ones the whole buffers
        [B, heads, length, d], with zeros where nothing was written yet, or what was
        written of them.
        """
        if layer == len(self._layers):
            self._layers.append((self._buffer(key), self._buffer(value)))
            return key, value
        keys, values = self._layers[layer]
        end = self.used + key.shape[2]
        keys[:, :, self.used : end] = key
        values[:, :, self.used : end] = value
        if self._whole:
            return keys, values
        return keys[:, :, :end], values[:, :, :end]

    def _buffer(self, given: Tensor) -> Tensor:
        rows, heads, tokens, width = given.shape
        buffer = given.new_zeros(rows, heads, self.length, width)
        buffer[:, :, :tokens] = given
        return buffer

    def advance(self, tokens: int) -> None:
        """Count the tokens that the last forward pass wrote."""
        self.used += tokens

    def select(self, rows: Tensor) -> None:
        """Keep these rows, int64 [rows], in this order; a row may be named several times."""
        if self._layers:
            rows = rows.to(self._layers[0][0].device)
        self._layers = [
            (torch.index_select(keys, 0, rows), torch.index_select(values, 0, rows))
            for keys, values in self._layers
        ]
