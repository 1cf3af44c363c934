"""From logits and a uniform number to a token, row by row."""

import torch
from torch import Tensor

from instella.errors import KitError


def choose(
    logits: Tensor, uniforms: Tensor, temperature: float, top_p: float, vocabulary: int
) -> tuple[Tensor, Tensor]:
    """One token for each row, by inversion of the cumulative distribution in id order.

    Args:
        logits: float [R, V].
        uniforms: float64 [R], in [0, 1).
        temperature: divides the logits; 0 takes the largest logit.
        top_p: sample from the smallest set of most probable ids whose sum reaches it;
            of equally probable ids the smaller comes first.
        vocabulary: ids from here on are never chosen; they pad the embedding.

    Returns:
        ids int64 [R], and their log-probabilities float32 [R] under the plain softmax of
        all V logits: temperature 1, no nucleus, padding rows included, which is what the
        training objective computes.

    Raises:
        KitError: logits that are not finite.
    """
    logits = logits.float()
    # One that is not finite leaves no finite sum, which takes a fifth of looking at each.
    if not bool(torch.isfinite(logits.sum())):
        raise KitError("sampling: the network's logits are not finite: it has diverged")
    logprobs = torch.log_softmax(logits, dim=-1)
    allowed = logits[:, :vocabulary]
    if temperature == 0:
        ids = allowed.argmax(dim=-1)
    else:
        probabilities = torch.softmax(allowed / temperature, dim=-1).double()
        if top_p < 1:
            probabilities = _nucleus(probabilities, top_p)
        ids = _invert(probabilities, uniforms)
    return ids, logprobs.gather(1, ids[:, None])[:, 0]


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    ordered, places = torch.sort(probabilities, dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.where(before < top_p, ordered, 0.0)
    return torch.zeros_like(probabilities).scatter_(1, places, kept)


def _invert(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    cumulative = probabilities.cumsum(-1)
    target = uniforms[:, None] * cumulative[:, -1:]
    # An id of probability 0 adds nothing, so the first sum beyond the target is never its own.
    return torch.searchsorted(cumulative, target, right=True)[:, 0]
