"""Intervals of measured figures: percentile bootstrap over clusters of items.

A figure is a ratio ``sum(numerator) / sum(denominator)`` over items: the loss of a text
set is its summed negative log-likelihood over its tokens, an accuracy its right items
over its items. Items of one cluster (several pairs of one question, say) are drawn
together, since they are not independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Pair = tuple[float, float]
LOW, HIGH = 2.5, 97.5


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval and the number of items behind it."""

    value: float
    low: float
    high: float
    items: int


@dataclass(frozen=True)
class Sample:
    """One item's share of a figure."""

    key: str
    cluster: str
    pair: Pair


def estimate(samples: Sequence[Sample], resamples: int, seed: int) -> Estimate:
    """The figure over all items and its interval; ValueError without items."""
    clusters = _by_cluster(samples)
    drawn = _resample(clusters, resamples, seed)
    total = clusters.sum(axis=0)
    return Estimate(float(total[0] / total[1]), *_interval(_ratio(drawn)), len(samples))


def difference(
    left: Sequence[Sample], right: Sequence[Sample], resamples: int, seed: int
) -> Estimate:
    """Left figure minus right figure over the same items, drawn in pairs.

    Raises:
        ValueError: the two sides do not hold the same items.
    """
    if [sample.key for sample in left] != [sample.key for sample in right]:
        raise ValueError("the two sides hold different items")
    both = np.concatenate([_by_cluster(left), _by_cluster(right)], axis=1)
    drawn = _resample(both, resamples, seed)
    total = both.sum(axis=0)
    value = float(total[0] / total[1] - total[2] / total[3])
    spread = _ratio(drawn[:, :2]) - _ratio(drawn[:, 2:])
    return Estimate(value, *_interval(spread), len(left))


def _by_cluster(samples: Sequence[Sample]) -> np.ndarray:
    """Sums of the pairs of each cluster, float64 [clusters, 2], in order of appearance."""
    if not samples:
        raise ValueError("no items")
    order: dict[str, int] = {}
    for sample in samples:
        order.setdefault(sample.cluster, len(order))
    sums = np.zeros((len(order), 2))
    for sample in samples:
        sums[order[sample.cluster]] += sample.pair
    return sums


def _resample(rows: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Sums over clusters drawn with replacement, float64 [resamples, columns]."""
    generator = np.random.Generator(np.random.PCG64(seed))
    count = len(rows)
    result = np.empty((resamples, rows.shape[1]))
    for index in range(resamples):
        times = np.bincount(generator.integers(0, count, count), minlength=count)
        result[index] = (rows * times[:, None]).sum(axis=0)
    return result


def _ratio(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / sums[:, 1]


def _interval(values: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values, [LOW, HIGH])
    return float(low), float(high)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased estimate of solving an item in k tries (Chen et al. 2021, eq. 1).

    Args:
        samples: answers drawn for the item.
        correct: how many of them are right.
        k: tries, at most ``samples``.
    """
    if not 0 <= correct <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} of {correct} right in {samples}")
    wrong = 1.0
    for index in range(samples - correct + 1, samples + 1):
        wrong *= 1.0 - k / index
    return 1.0 - wrong
