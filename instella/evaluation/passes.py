"""pass@k of sampled answers, from the verdicts that records hold.

An item is one question with several samples, which are not independent: it is one cluster,
and its estimate of pass@k is one number. The mean over items is the figure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instella.errors import BadUse
from instella.evaluation.statistics import Sample, pass_at_k
from instella.rewards.grade import CORRECT

Record = Mapping[str, Any]


def pass_samples(records: Sequence[Record], k: int) -> list[Sample]:
    """Each item's estimate of pass@k by the unbiased estimator (Chen et al. 2021, eq. 1).

    Args:
        records: each with ``key``, ``cluster`` and ``verdicts``, one a sample.
        k: tries.

    Raises:
        BadUse: an item with fewer than ``k`` samples.
    """
    samples = []
    for record in records:
        judged = record["verdicts"]
        if not 1 <= k <= len(judged):
            raise BadUse(
                f"{record['key']}: pass@{k} needs {k} samples, found {len(judged)}; "
                "draw more, or ask for a smaller k"
            )
        value = pass_at_k(len(judged), judged.count(CORRECT), k)
        samples.append(Sample(record["key"], record["cluster"], (value, 1.0)))
    return samples


@dataclass(frozen=True)
class Spread:
    """Where the variance of a mean over sampled answers comes from.

    Attributes:
        between: variance of an item's true rate, over items (never below 0).
        within: mean variance of one sample around its item's rate.
        design_effect: variance of the figure over what it would be if all samples were
            independent; 1 without any effect of the question.
    """

    between: float
    within: float
    design_effect: float


def spread(records: Sequence[Record]) -> Spread:
    """Analysis of variance over items with the same number of samples, at least two each.

    Raises:
        BadUse: fewer than two items or samples, or items with different numbers of samples.
    """
    counts = {len(record["verdicts"]) for record in records}
    if len(records) < 2 or len(counts) != 1 or min(counts) < 2:
        raise BadUse(
            "the spread of samples needs at least two items with as many samples each, at "
            f"least two; found {len(records)} items with {sorted(counts)} samples"
        )
    number = counts.pop()
    rates = [record["verdicts"].count(CORRECT) / number for record in records]
    mean = sum(rates) / len(rates)
    # p (1 - p) m / (m - 1) is the unbiased variance of one of m right-or-wrong samples.
    within = sum(p * (1.0 - p) for p in rates) / len(rates) * number / (number - 1)
    of_rates = sum((p - mean) ** 2 for p in rates) / (len(rates) - 1)
    between = max(0.0, of_rates - within / number)
    alone = (between + within) / number
    return Spread(between, within, of_rates / alone if alone else 1.0)
