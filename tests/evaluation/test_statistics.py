"""Intervals, paired differences and pass@k, against values worked out by hand."""

import pytest

from instella.evaluation.statistics import Sample, difference, estimate, pass_at_k


def samples(values, clusters=None):
    clusters = clusters or [str(i) for i in range(len(values))]
    return [
        Sample(str(i), c, (float(v), 1.0))
        for i, (v, c) in enumerate(zip(values, clusters, strict=True))
    ]


def test_the_value_is_a_ratio_of_sums():
    items = [Sample("a", "a", (6.0, 2.0)), Sample("b", "b", (0.0, 4.0))]
    assert estimate(items, 200, 0).value == 1.0


def test_interval_of_equal_items_has_no_width():
    figure = estimate(samples([0.5] * 20), 200, 0)
    assert (figure.low, figure.value, figure.high) == (0.5, 0.5, 0.5)


def test_interval_covers_like_the_normal_approximation():
    figure = estimate(samples([1.0] * 50 + [0.0] * 50), 2000, 1)
    assert figure.low == pytest.approx(0.5 - 1.96 * 0.05, abs=0.02)
    assert figure.high == pytest.approx(0.5 + 1.96 * 0.05, abs=0.02)


def test_items_of_one_cluster_are_drawn_together():
    values = [1.0] * 50 + [0.0] * 50
    alone = estimate(samples(values), 500, 2)
    paired = estimate(samples(values, [str(i // 10) for i in range(100)]), 500, 2)
    assert paired.high - paired.low > 2 * (alone.high - alone.low)


def test_same_seed_same_interval_other_seed_another():
    items = samples([0.1 * (i % 7) for i in range(60)])
    assert estimate(items, 300, 5) == estimate(items, 300, 5)
    assert estimate(items, 300, 5) != estimate(items, 300, 6)


def test_paired_difference_is_tighter_than_its_sides():
    right = samples([float(i % 2) for i in range(100)])
    left = samples([float(i % 2) * 0.9 + 0.1 for i in range(100)])
    figure = difference(left, right, 500, 0)
    assert figure.value == pytest.approx(0.05)
    assert 0.03 < figure.low < figure.high < 0.07


def test_difference_of_other_items_is_refused():
    with pytest.raises(ValueError, match="different items"):
        difference(samples([1.0]), samples([1.0, 0.0]), 100, 0)


def test_no_items_is_refused():
    with pytest.raises(ValueError, match="no items"):
        estimate([], 100, 0)


@pytest.mark.parametrize(
    ("samples_", "correct", "k", "expected"),
    [(16, 0, 1, 0.0), (16, 4, 1, 0.25), (4, 2, 2, 1 - 1 / 6), (4, 3, 2, 1.0), (5, 1, 5, 1.0)],
)
def test_pass_at_k_by_hand(samples_, correct, k, expected):
    assert pass_at_k(samples_, correct, k) == pytest.approx(expected)


def test_pass_at_1_does_not_change_when_samples_double():
    assert pass_at_k(16, 4, 1) == pytest.approx(pass_at_k(32, 8, 1))


def test_pass_at_k_refuses_impossible_counts():
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(4, 5, 1)
