"""pass@k of three items by hand, and where the variance of a mean comes from."""

from itertools import combinations
from math import comb

import pytest

from instella.errors import BadUse
from instella.evaluation.compare import score
from instella.evaluation.passes import pass_samples, spread
from instella.rewards.grade import CORRECT, NO_ANSWER, WRONG


def record(key, right, samples):
    judged = [CORRECT] * right + [WRONG] * (samples - right)
    return {"key": key, "cluster": key, "verdicts": judged}


# Four samples of each item: none, one and three of them right.
THREE = [record("a", 0, 4), record("b", 1, 4), record("c", 3, 4)]


@pytest.mark.parametrize(
    ("k", "values"),
    [
        (1, [0.0, 1 / 4, 3 / 4]),
        # Of the 6 pairs of samples 3 hold b's right one; c's single wrong one never fills a pair.
        (2, [0.0, 3 / 6, 1.0]),
        # Of the 4 triples 3 hold b's right one.
        (3, [0.0, 3 / 4, 1.0]),
        (4, [0.0, 1.0, 1.0]),
    ],
)
def test_three_items_by_hand(k, values):
    samples = pass_samples(THREE, k)
    assert [sample.pair for sample in samples] == [pytest.approx((v, 1.0)) for v in values]
    assert score(samples).value == pytest.approx(sum(values) / 3)


def test_the_estimate_is_the_share_of_all_choices_of_k_samples():
    for right in range(7):
        (value,) = (sample.pair[0] for sample in pass_samples([record("a", right, 6)], 3))
        hits = sum(min(chosen) < right for chosen in combinations(range(6), 3))
        assert value == pytest.approx(hits / comb(6, 3))


def test_no_answer_and_time_out_are_not_right():
    judged = {"key": "a", "cluster": "a", "verdicts": [CORRECT, NO_ANSWER, "timed out", WRONG]}
    assert pass_samples([judged], 1)[0].pair == (0.25, 1.0)


def test_too_few_samples_are_refused():
    with pytest.raises(BadUse, match="b: pass@3 needs 3 samples, found 2"):
        pass_samples([record("b", 1, 2)], 3)


def test_an_item_is_one_cluster_however_many_samples_it_has():
    """Sixteen samples of 10 questions are 10 facts, not 160."""
    records = [record(str(n), 16 if n < 5 else 0, 16) for n in range(10)]
    found = score(pass_samples(records, 1))
    assert (found.items, found.clusters) == (10, 10)
    assert found.error == pytest.approx((0.25 / 9) ** 0.5)
    as_if_independent = (0.25 / 159) ** 0.5
    assert found.error > 4 * as_if_independent
    # All variance lies between questions: the samples of one always agree.
    parts = spread(records)
    assert parts.within == 0.0
    assert parts.between == pytest.approx(0.25 * 10 / 9)
    assert parts.design_effect == pytest.approx(16.0)


def test_samples_that_do_not_know_their_question_have_no_design_effect():
    """Every question half right: the rates do not vary at all."""
    parts = spread([record(str(n), 2, 4) for n in range(6)])
    assert parts.between == 0.0
    assert parts.within == pytest.approx(0.25 * 4 / 3)


def test_spread_by_hand():
    """Rates 0, 1/4, 3/4: variance 7/48; within (0 + 3/16 + 3/16) / 3 * 4/3 = 1/6."""
    parts = spread(THREE)
    assert parts.within == pytest.approx(1 / 6)
    assert parts.between == pytest.approx(7 / 48 - 1 / 24)
    assert parts.design_effect == pytest.approx((7 / 48) / ((7 / 48 - 1 / 24 + 1 / 6) / 4))


@pytest.mark.parametrize(
    "records", [THREE[:1], [record("a", 1, 1), record("b", 0, 1)], [*THREE, record("d", 1, 5)]]
)
def test_a_spread_that_cannot_be_told_is_refused(records):
    with pytest.raises(BadUse, match="the spread of samples needs"):
        spread(records)
