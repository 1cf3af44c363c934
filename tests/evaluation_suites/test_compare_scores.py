"""Standard errors, paired differences and verdicts, by hand and by simulation."""

import math

import numpy as np
import pytest

from instella.errors import BadUse
from instella.evaluation.compare import (
    CONSISTENT,
    HIGHER,
    LOWER,
    NOT_COMPARABLE,
    Printed,
    Score,
    paired_difference,
    quantile,
    score,
    share,
    verdict,
)
from instella.evaluation.statistics import Sample, difference


def samples(values, clusters=None, weights=None):
    clusters = clusters or range(len(values))
    weights = weights or [1.0] * len(values)
    rows = enumerate(zip(values, clusters, weights, strict=True))
    return [Sample(str(i), str(c), (float(v), float(w))) for i, (v, c, w) in rows]


def test_error_of_a_mean_by_hand():
    found = score(samples([1, 0, 0, 1, 1]))
    assert found.value == pytest.approx(0.6)
    assert found.error == pytest.approx(math.sqrt(0.6 * 0.4 / 4))
    assert (found.items, found.clusters) == (5, 5)


def test_error_of_a_ratio_by_hand():
    """Residuals 2 - 1 * 1 and 1 - 1 * 2: variance (1 + 1) * 2 / 1 over the squared total 9."""
    found = score(samples([2, 1], weights=[1, 2]))
    assert found.value == 1.0
    assert found.error == pytest.approx(math.sqrt(4) / 3)


def test_copies_of_a_cluster_do_not_shrink_the_error():
    alone = score(samples([1, 0, 1, 0, 0]))
    copied = score(samples([1, 0, 1, 0, 0] * 8, clusters=list(range(5)) * 8))
    assert copied.error == pytest.approx(alone.error)
    assert score(samples([1, 0, 1, 0, 0] * 8)).error < alone.error / 2


def test_one_cluster_has_no_error():
    with pytest.raises(BadUse, match="needs two clusters of items, found 1"):
        score(samples([1, 0], clusters=[0, 0]))


def test_marks_that_are_all_alike_still_have_an_error():
    """0 of 16 is likelier than 2.5 % up to a share p with (1 - p) ** 16 = 0.025."""
    none, every = (share(samples([mark] * 16)) for mark in (0, 1))
    low, high = none.interval()
    assert low == 0.0 and (1.0 - high) ** 16 == pytest.approx(0.025)
    assert every.interval() == (pytest.approx(1.0 - high), 1.0)
    assert none.scaled(100.0).interval() == (0.0, pytest.approx(100.0 * high))
    # Copies of one question say no more than it does.
    assert share(samples([0] * 64, clusters=list(range(16)) * 4)).error == none.error
    # One right sample of 256, in one question of 16: no surer than one question of 16.
    one = share(samples([1] + [0] * 255, clusters=[n // 16 for n in range(256)]))
    limit = one.interval()[1]
    assert one.value == 1 / 256
    assert (1 - limit) ** 16 + 16 * limit * (1 - limit) ** 15 == pytest.approx(0.025)
    many = samples([1] * 6 + [0] * 8)
    assert (share(many).value, share(many).error) == (score(many).value, score(many).error)
    assert share(samples([1] * 20 + [0])).interval()[1] == 1.0


def test_interval_and_quantile():
    assert quantile(0.95) == pytest.approx(1.959964, abs=1e-6)
    low, high = Score(50.0, 2.0, 100, 100).interval()
    assert (low, high) == (pytest.approx(46.08, abs=0.001), pytest.approx(53.92, abs=0.001))


def test_paired_difference_by_hand():
    """Differences 1, 0, 0, -1, 1: mean 0.2, variance 0.7 of one, 0.7 / 5 of the mean."""
    left, right = samples([1, 1, 0, 0, 1]), samples([0, 1, 0, 1, 0])
    found = paired_difference(left, right[::-1])
    assert found.value == pytest.approx(0.2)
    assert found.error == pytest.approx(math.sqrt(0.7 / 5))


def test_paired_difference_agrees_with_the_bootstrap():
    generator = np.random.Generator(np.random.PCG64(2))
    hard = generator.random(200)
    left = samples((hard + 0.2 * generator.random(200) > 0.6).tolist())
    right = samples((hard + 0.1 * generator.random(200) > 0.6).tolist())
    found = paired_difference(left, right)
    drawn = difference(left, right, 2000, 0)
    assert found.value == pytest.approx(drawn.value)
    low, high = found.interval()
    assert (low, high) == (pytest.approx(drawn.low, abs=0.01), pytest.approx(drawn.high, abs=0.01))
    assert found.error < math.hypot(score(left).error, score(right).error) / 2


def test_paired_difference_of_clustered_ratios():
    values, weights, clusters = [3, 1, 2, 5, 4, 6], [2, 1, 1, 3, 2, 2], [0, 0, 1, 1, 2, 2]
    left = samples(values, clusters, weights)
    same = paired_difference(left, left)
    assert (same.value, same.error, same.clusters) == (0.0, 0.0, 3)
    assert paired_difference(left, samples([0] * 6, clusters, weights)).error == pytest.approx(
        score(left).error
    )


@pytest.mark.parametrize(
    "right", [samples([1, 0, 1]), samples([1, 0]) + samples([1]), samples([1, 0], clusters=[1, 0])]
)
def test_sides_that_do_not_match_are_refused(right):
    with pytest.raises(BadUse, match=r"different items|different clusters"):
        paired_difference(samples([1, 0]), right)


def test_the_largest_error_of_a_printed_score():
    assert Printed(50.0, 100).error == pytest.approx(5.0)
    assert Printed(0.0, 100).error == 0.0
    # Marks from 1 to 10: (7.23 - 1)(10 - 7.23) / 80.
    marks = Printed(7.23, 80, 1.0, 10.0)
    assert marks.error == pytest.approx(math.sqrt(6.23 * 2.77 / 80))
    with pytest.raises(ValueError, match="unknown"):
        _ = Printed(50.0, None).error


@pytest.mark.parametrize(
    ("value", "word"),
    [(50.0, CONSISTENT), (63.0, CONSISTENT), (65.0, HIGHER), (37.0, CONSISTENT), (35.0, LOWER)],
)
def test_verdicts(value, word):
    """Both errors 5: a margin of 1.96 * 7.07 + 0.005 = 13.86."""
    found = verdict(Score(value, 5.0, 100, 100), Printed(50.0, 100))
    assert found.word == word
    assert found.margin == pytest.approx(13.864, abs=0.001)
    assert found.difference == pytest.approx(value - 50.0)


def test_noise_of_training_widens_and_digits_count():
    ours = Score(65.0, 5.0, 100, 100)
    assert verdict(ours, Printed(50.0, 100), training=5.0).word == CONSISTENT
    rounded = verdict(ours, Printed(50.0, 100, digits=0))
    assert rounded.margin == pytest.approx(13.864 + 0.495, abs=0.001)
    # Without any noise only rounding is left.
    assert verdict(Score(99.996, 0.0, 9, 9), Printed(100.0, 9)).word == CONSISTENT
    assert verdict(Score(99.994, 0.0, 9, 9), Printed(100.0, 9)).word == LOWER


def test_an_unknown_number_of_items_is_not_comparable():
    found = verdict(Score(50.0, 1.0, 100, 100), Printed(50.0, None))
    assert (found.word, found.reason) == (
        NOT_COMPARABLE,
        "the published number of items is unknown",
    )


def test_equal_models_are_called_consistent_as_often_as_the_level_says():
    """2,000 pairs of runs with a rate of 0.6 on 400 items each, other items on either side."""
    generator = np.random.Generator(np.random.PCG64(5))
    words = []
    for ours, theirs in generator.binomial(400, 0.6, (2000, 2)).tolist():
        rate = ours / 400
        error = 100 * math.sqrt(rate * (1 - rate) / 399)
        words.append(verdict(Score(100 * rate, error, 400, 400), Printed(theirs / 4, 400)).word)
    assert 0.94 <= words.count(CONSISTENT) / 2000 <= 0.965
    assert abs(words.count(HIGHER) - words.count(LOWER)) < 40
