"""The losses of the recipe as plain functions of tensors.

Every divisor is a property of the global batch and known before its micro-batches run,
so a loss is a sum of micro-batch terms, and gradients simply add.

Shapes: B rows, T tokens, V entries of the vocabulary. Log-probabilities of labels have
T - 1 columns: column i belongs to token i + 1.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from instella.errors import BadUse
from instella.training.reduction import ordered_sum

KL_LIMIT = 10.0
LOGPROB_LIMIT = 20.0
ADVANTAGE_EPSILON = 1e-6


def label_logprobs(logits: Tensor, ids: Tensor) -> Tensor:
    """Log-probability of each token given those before it.

    Args:
        logits: [B, T, V]; the last position predicts nothing and is not read.
        ids: int64 [B, T].

    Returns:
        float32 [B, T - 1].
    """
    return target_logprobs(logits[:, :-1], ids[:, 1:])


def target_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-softmax of ``logits`` [B, N, V] at ``targets`` [B, N], in float32."""
    flat = logits.reshape(-1, logits.shape[-1]).float()
    losses = F.cross_entropy(flat, targets.reshape(-1), reduction="none")
    return -losses.view(targets.shape)


def next_token_normalizer(rows: int, length: int, normalizer: str) -> int:
    """What the pretraining loss of ``rows`` windows is divided by.

    The published trainer sums T - 1 terms a window and divides by T (``tokens``);
    ``targets`` divides by the number of terms.
    """
    return rows * (length if normalizer == "tokens" else length - 1)


def next_token_loss(logits: Tensor, ids: Tensor, normalizer: float) -> Tensor:
    """Cross-entropy of all tokens but the first, summed and divided by ``normalizer``.

    Args:
        logits: [B, T, V].
        ids: int64 [B, T].
        normalizer: ``next_token_normalizer`` of the global batch.
    """
    return summed_loss(label_logprobs(logits, ids)) / normalizer


def masked_loss(logits: Tensor, ids: Tensor, mask: Tensor, normalizer: float) -> Tensor:
    """Cross-entropy of the labelled tokens, summed and divided by ``normalizer``.

    Published SFT divides by the labels of the local rank, so its result depends on the
    number of ranks; here it is the labels of the global batch. A constant loss scale
    is 1 / normalizer.

    Args:
        logits: [B, T, V].
        ids: int64 [B, T].
        mask: bool [B, T], true where a token is a label; the first is never scored.
        normalizer: a property of the global batch.
    """
    return summed_loss(label_logprobs(logits, ids), mask) / normalizer


def summed_loss(logprobs: Tensor, mask: Tensor | None = None) -> Tensor:
    """Minus the sum of label log-probabilities [B, T - 1] where ``mask`` [B, T] is true."""
    if mask is not None:
        logprobs = torch.where(mask[:, 1:], logprobs, 0.0)
    return -logprobs.sum()


def sequence_logprobs(logits: Tensor, ids: Tensor, mask: Tensor, average: bool) -> Tensor:
    """Log-probability of the labelled tokens of each row.

    Args:
        logits: [B, T, V].
        ids: int64 [B, T].
        mask: bool [B, T].
        average: divide by the row's labels (dpo_norm) instead of taking the sum.

    Returns:
        float32 [B].

    Raises:
        BadUse: a row has no label.
    """
    return masked_logprobs(label_logprobs(logits, ids), mask, average)


def masked_logprobs(logprobs: Tensor, mask: Tensor, average: bool) -> Tensor:
    """As ``sequence_logprobs``, from label log-probabilities [B, T - 1]."""
    labels = mask[:, 1:]
    counts = labels.sum(dim=1)
    if not bool((counts > 0).all()):
        row = int((counts == 0).nonzero()[0].item())
        raise BadUse(f"row {row} of the batch has no label after its first token: drop it")
    sums = torch.where(labels, logprobs, 0.0).sum(dim=1)
    return sums / counts if average else sums


def preference_loss(
    policy_chosen: Tensor,
    policy_rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    beta: float,
) -> Tensor:
    """DPO loss of each pair: -log sigmoid(beta * (policy margin - reference margin)).

    With log-probabilities averaged over length it is open-instruct's ``dpo_norm``; a
    reward is beta * (policy - reference).

    Args:
        policy_chosen, policy_rejected: [pairs], of the network in training.
        reference_chosen, reference_rejected: [pairs], of the frozen start.
        beta: inverse temperature.

    Returns:
        float32 [pairs], not reduced.
    """
    margin = (policy_chosen - policy_rejected) - (reference_chosen - reference_rejected)
    return -F.logsigmoid(beta * margin)


class PolicyTerms(NamedTuple):
    """Loss to call backward on, and figures that add up over micro-batches."""

    loss: Tensor
    figures: dict[str, float]


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    reference_logprobs: Tensor | None,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
    kl_coefficient: float,
    normalizer: float,
) -> PolicyTerms:
    """GRPO loss, token mean, with the low-variance KL term (verl's formulas).

    For ratio r and advantage A a token costs max(-A r, -A clip(r, 1 - low, 1 + high)),
    and at most -A * dual_clip where A < 0. The KL term is exp(d) - d - 1 with
    d = reference - policy, cut to +-10.

    Args:
        logprobs: [B, N] of the network in training.
        old_logprobs: [B, N] when the responses were sampled.
        reference_logprobs: [B, N] of the frozen start; None without a KL term.
        advantages: [B], one a response, or [B, N].
        mask: bool [B, N], true on response tokens.
        clip_low, clip_high: ratio clip.
        dual_clip: bound of a negative advantage's loss.
        kl_coefficient: weight of the KL term.
        normalizer: response tokens of the global (mini-)batch.

    Returns:
        Loss, and ``loss``, ``policy_loss``, ``kl_loss``, ``approximate_kl``,
        ``clip_fraction``, ``dual_clip_fraction``, each a token mean.
    """
    if advantages.dim() == 1:
        advantages = advantages[:, None]
    difference = _bounded(logprobs - old_logprobs, mask)
    ratio = torch.exp(difference)
    plain = -advantages * ratio
    clipped = -advantages * torch.clamp(ratio, 1.0 - clip_low, 1.0 + clip_high)
    upper = torch.maximum(plain, clipped)
    bound = -advantages * dual_clip
    losses = torch.where(advantages < 0, torch.minimum(upper, bound), upper)
    divergence = torch.zeros_like(losses)
    if reference_logprobs is not None:
        divergence = low_variance_kl(_bounded(reference_logprobs - logprobs, mask))
    total = losses + kl_coefficient * divergence

    def mean(values: Tensor) -> float:
        return ordered_sum(torch.where(mask, values, 0.0)) / normalizer

    figures = {
        "loss": mean(total),
        "policy_loss": mean(losses),
        "kl_loss": mean(divergence),
        "approximate_kl": mean(-difference),
        "clip_fraction": mean((clipped > plain).float()),
        "dual_clip_fraction": mean(((upper > bound) & (advantages < 0)).float()),
    }
    return PolicyTerms(torch.where(mask, total, 0.0).sum() / normalizer, figures)


def low_variance_kl(difference: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(policy || reference) for each token, cut to +-10.

    Args:
        difference: log-probability of the reference less that of the policy.
    """
    return torch.clamp(torch.exp(difference) - difference - 1.0, -KL_LIMIT, KL_LIMIT)


def _bounded(difference: Tensor, mask: Tensor) -> Tensor:
    # beyond +-20 every term is clipped anyway, but an infinite exp would make its zero
    # gradient NaN; so would what stands on masked tokens
    return torch.where(mask, difference, 0.0).clamp(-LOGPROB_LIMIT, LOGPROB_LIMIT)


def group_advantages(rewards: Any, normalize_by_std: bool) -> Tensor:
    """Rewards of each group less their mean, over (standard deviation + 1e-6).

    The deviation is the unbiased one, in float64 through numpy, whose square root is
    correctly rounded. A group of equal rewards gives zeros.

    Args:
        rewards: [groups, n], n >= 2; tensor, array or lists.
        normalize_by_std: False only takes the mean off.

    Returns:
        float32 [groups, n].
    """
    values = np.asarray(rewards, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 2:
        raise BadUse(f"rewards of shape {values.shape}: wanted [groups, n] with n >= 2")
    equal = (values == values[:, :1]).all(axis=1, keepdims=True)
    centred = np.where(equal, 0.0, values - values.mean(axis=1, keepdims=True))
    if normalize_by_std:
        variance = np.square(centred).sum(axis=1, keepdims=True) / (values.shape[1] - 1)
        centred = centred / (np.sqrt(variance) + ADVANTAGE_EPSILON)
    return torch.from_numpy(centred.astype(np.float32))
