"""Is a figure of ours the published one? Standard errors, and verdicts with their reason.

Of a published score only the printed number is known, so its noise is modelled:

* items: a score is a mean over n items with marks from a to b; the variance of a mark is at
  most (mean - a)(b - mean) (Bhatia and Davis 2000), with equality for right-or-wrong marks.
* rounding: half a unit of the last printed digit, on either side, in full.
* training: our checkpoint is another run of the recipe; its standard deviation may be given.
  Of the published recipe one estimate is known: the averages of three stage-2 seeds.

Which items the published model had right is unknown, so the two errors are taken as
independent. On the same items they go together, and the test is then cautious: it may miss a
difference, and calls fewer equal things different than its level says.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from instella.errors import BadUse
from instella.evaluation.statistics import Sample

CONSISTENT = "consistent"
HIGHER = "higher"
LOWER = "lower"
NOT_COMPARABLE = "not comparable"

LEVEL = 0.95
# The usual least number of cases on either side for a normal interval of a share.
FEW = 5


@dataclass(frozen=True)
class Score:
    """A figure with its standard error, in the unit of the figure.

    ``items`` and ``clusters`` are 0 where a score was told without them; ``scale`` holds the
    lowest and the highest figure that can be, where there are any.
    """

    value: float
    error: float
    items: int
    clusters: int
    scale: tuple[float, float] | None = None

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Normal interval of the given level, cut at the ends of the scale."""
        half = quantile(level) * self.error
        low, high = self.scale or (-math.inf, math.inf)
        return max(low, self.value - half), min(high, self.value + half)

    def scaled(self, factor: float) -> "Score":
        """The same in another unit."""
        scale = None if self.scale is None else (self.scale[0] * factor, self.scale[1] * factor)
        return Score(self.value * factor, self.error * factor, self.items, self.clusters, scale)


def quantile(level: float) -> float:
    """How many standard errors an interval of this level reaches to either side."""
    return NormalDist().inv_cdf(0.5 + level / 2.0)


def score(samples: Sequence[Sample]) -> Score:
    """The ratio ``sum(numerators) / sum(denominators)`` with its cluster-robust error.

    The error is that of the linearised ratio over clusters (Cochran 1977, eq. 6.13, with
    clusters as units), so items of one cluster may depend on each other in any way.

    Raises:
        BadUse: fewer than two clusters.
    """
    order: dict[str, int] = {}
    for sample in samples:
        order.setdefault(sample.cluster, len(order))
    count = len(order)
    if count < 2:
        raise BadUse(f"a standard error needs two clusters of items, found {count}; measure more")
    sums = np.zeros((count, 2))
    for sample in samples:
        sums[order[sample.cluster]] += sample.pair
    top, bottom = sums.sum(axis=0)
    value = float(top / bottom)
    residuals = sums[:, 0] - value * sums[:, 1]
    spread = float((residuals * residuals).sum()) * count / (count - 1)
    return Score(value, math.sqrt(spread) / float(bottom), len(samples), count)


def share(samples: Sequence[Sample]) -> Score:
    """As ``score``, for marks from 0 to 1.

    Where all clusters but fewer than ``FEW`` have the same end of the scale, they show too little
    spread: 0 of 16 questions would have no error at all. The error is then such that the interval
    of ``LEVEL`` ends at the exact limit for a share (Clopper and Pearson 1934) with clusters as
    trials, those few counted in full: 0 of 16 may be up to 20.6 %.

    Raises:
        BadUse: fewer than two clusters.
    """
    found = score(samples)
    some = {sample.cluster for sample in samples if sample.pair[0] > 0.0}
    less = {sample.cluster for sample in samples if sample.pair[0] < sample.pair[1]}
    error = found.error
    for few, distance in ((some, found.value), (less, 1.0 - found.value)):
        if len(few) < FEW:
            limit = _largest_share(len(few), found.clusters)
            error = max(error, (limit - distance) / quantile(LEVEL))
    return Score(found.value, error, found.items, found.clusters, (0.0, 1.0))


def _largest_share(hits: int, trials: int) -> float:
    """The share at which so few hits, or fewer, have half of what ``LEVEL`` leaves."""
    low, high = hits / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        chance = math.fsum(
            math.comb(trials, n) * middle**n * (1.0 - middle) ** (trials - n)
            for n in range(hits + 1)
        )
        low, high = (middle, high) if chance > 0.5 - LEVEL / 2.0 else (low, middle)
    return high


def paired_difference(left: Sequence[Sample], right: Sequence[Sample]) -> Score:
    """Left figure minus right figure, whose items are the same in any order.

    What makes an item hard is common to both sides and cancels, so this is tighter than two
    intervals. For intervals by bootstrap see ``statistics.difference``.

    Raises:
        BadUse: items on one side only, an item twice, or an item in different clusters.
    """
    other = {sample.key: sample for sample in right}
    if {sample.key for sample in left} != set(other) or not len(left) == len(other) == len(right):
        only = sorted({sample.key for sample in left} ^ set(other))
        raise BadUse(
            f"the two sides hold different items{': ' + only[0] if only else ' or one twice'}"
        )
    moved = [sample.key for sample in left if other[sample.key].cluster != sample.cluster]
    if moved:
        raise BadUse(f"{moved[0]}: in different clusters on the two sides; measure both alike")
    tops = [sum(sample.pair[0] for sample in side) for side in (left, right)]
    bottoms = [sum(sample.pair[1] for sample in side) for side in (left, right)]
    ratios = [top / bottom for top, bottom in zip(tops, bottoms, strict=True)]
    # The linearised difference of ratios is itself a mean of one number an item.
    shares = []
    for sample in left:
        pairs = (sample.pair, other[sample.key].pair)
        first, second = (
            (top - ratio * bottom) / total
            for (top, bottom), ratio, total in zip(pairs, ratios, bottoms, strict=True)
        )
        shares.append(Sample(sample.key, sample.cluster, ((first - second) * len(left), 1.0)))
    found = score(shares)
    return Score(ratios[0] - ratios[1], found.error, found.items, found.clusters)


@dataclass(frozen=True)
class Printed:
    """A published score.

    Attributes:
        value: as printed.
        items: how many, or None when no source tells.
        lowest, highest: the scale of one item's mark.
        digits: decimals printed.
    """

    value: float
    items: int | None
    lowest: float = 0.0
    highest: float = 100.0
    digits: int = 2

    @property
    def error(self) -> float:
        """Largest standard error that a mean with this value can have; ValueError without items."""
        if self.items is None:
            raise ValueError("the number of items is unknown")
        return math.sqrt((self.value - self.lowest) * (self.highest - self.value) / self.items)

    @property
    def rounding(self) -> float:
        """Half a unit of the last digit."""
        return 0.5 * 10.0**-self.digits


@dataclass(frozen=True)
class Verdict:
    """``word`` with its reason; ``difference`` is ours minus published, ``margin`` its limit."""

    word: str
    reason: str = ""
    difference: float | None = None
    margin: float | None = None


def verdict(ours: Score, printed: Printed, training: float = 0.0, level: float = LEVEL) -> Verdict:
    """Compare a figure of ours with a published one under the noise model.

    Args:
        ours: in the unit of the printed score.
        printed: what is published.
        training: standard deviation between runs of the recipe, in the same unit.
        level: share of equal things that are called consistent, at least.
    """
    if printed.items is None:
        return Verdict(NOT_COMPARABLE, "the published number of items is unknown")
    return judged(ours.value - printed.value, (ours.error, printed.error, training),
                  printed.rounding, level)  # fmt: skip


def judged(
    difference: float, errors: Sequence[float], rounding: float, level: float = LEVEL
) -> Verdict:
    """The verdict on a difference whose independent standard errors are given."""
    margin = quantile(level) * math.hypot(*errors) + rounding
    further = HIGHER if difference > 0 else LOWER
    word = CONSISTENT if abs(difference) <= margin else further
    return Verdict(word, f"{difference:+.2f} against a margin of {margin:.2f}", difference, margin)
