"""Log-likelihoods of continuations, the same for any batch size, order or neighbour.

Every row is padded on the right to the set's fixed length, so each shape but the number
of rows is a constant of the held-out set; a causal network does not see what follows, and
rows of a product do not depend on how many rows there are. Elementwise kernels compute
the last few values of a tensor, less than a vector, by other code than the rest: a spare
row at the end of each batch takes them, so that they are nobody's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from instella.errors import KitError
from instella.network.device import CPU
from instella.network.network import Instella

ROWS_PER_BATCH = 32


@dataclass(frozen=True)
class Scored:
    """Tokens to score: the ids from position ``start`` on, given those before."""

    ids: Sequence[int]
    start: int


@torch.no_grad()
def logprobs(
    network: Instella, rows: Sequence[Scored], length: int, pad_id: int
) -> list[np.ndarray]:
    """Log-probability of each scored token.

    Args:
        network: the model, in evaluation.
        rows: at most ``length`` ids each, ``start`` at least 1.
        length: fixed padded length of every row.
        pad_id: id that fills rows.

    Returns:
        For each row float64 [len(ids) - start].

    Raises:
        ValueError: a row that is too long or starts at 0.
        KitError: log-probabilities that are not finite.
    """
    results: list[np.ndarray] = []
    for first in range(0, len(rows), ROWS_PER_BATCH):
        results += _batch(network, rows[first : first + ROWS_PER_BATCH], length, pad_id)
    return results


def _batch(network: Instella, rows: Sequence[Scored], length: int, pad_id: int) -> list[np.ndarray]:
    ids = torch.full((len(rows) + 1, length), pad_id, dtype=torch.int64)
    for index, row in enumerate(rows):
        if not 1 <= row.start <= len(row.ids) <= length:
            raise ValueError(f"row of {len(row.ids)} ids from {row.start} in length {length}")
        ids[index, : len(row.ids)] = torch.tensor(row.ids, dtype=torch.int64)
    logits = network(ids[:, :-1]).to(CPU)
    picked = torch.log_softmax(logits.float(), dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
    values = picked.numpy().astype(np.float64)
    scored = [values[index, row.start - 1 : len(row.ids) - 1] for index, row in enumerate(rows)]
    if not all(np.isfinite(own).all() for own in scored):
        raise KitError("evaluation: the network's logits are not finite: it has diverged")
    return scored
