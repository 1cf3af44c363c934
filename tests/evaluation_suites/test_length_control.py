"""The length-controlled share of wins: by hand, and against scikit-learn's solver.

The figures of ``drawn`` were made with scikit-learn 1.9.1: LogisticRegression with an L1 penalty,
liblinear, no intercept, tolerance 1e-12, each row once as won and once as lost, weighted.
"""

import math

import numpy as np
import pytest

from instella.errors import BadUse
from instella.evaluation.length_control import (
    Compared,
    Gamed,
    fitted,
    length_controlled,
    parse_gamed,
)

HEAD = "index,preference,std_delta_len,instruction_difficulty,not_gamed_baseline"


def drawn() -> tuple[list[Compared], Gamed]:
    """Sixty questions, three of them without a verdict; longer answers, and those to easy ones, win more often."""
    compared = []
    for n in range(60):
        own, other = 80 + (n * 37) % 211, 150 + (n * 53) % 97
        luck = (n * 71) % 120 - 50 * (n * 7 % 19 - 9) / 6
        won = float(own + luck > other) if n % 23 != 7 else None
        compared.append(Compared(str(n), won, own, other))
    rows = [HEAD]
    for n in range(120):
        length, hard = ((n * 17) % 13 - 6) / 4, ((n % 60) * 7 % 19 - 9) / 6
        share = 1.0 / (1.0 + math.exp(length - 0.3 * hard + ((n * 29) % 11 - 5) / 5))
        rows.append(f"{n % 60},{share:.3f},{length},{hard:.6f},False")
    return compared, parse_gamed("\n".join(rows).encode(), "df_gamed.csv")


def test_weights_and_share_are_those_of_scikit_learn():
    compared, gamed = drawn()
    found = length_controlled(compared, gamed)
    assert found.weights == pytest.approx((2.5525279496, -3.0570705836, -1.3853149653), rel=1e-8)
    assert found.share == pytest.approx(0.8830487076, abs=1e-9)
    # 44 of 57 won, most of them by longer answers to easy questions.
    assert sum(one.won or 0.0 for one in compared) == 44
    assert found.low < found.share < found.high


def test_a_stronger_penalty_is_scikit_learns_too():
    """At a hundredth of a question the constant of 44 in 57 is worth no weight at all."""
    compared, gamed = drawn()
    judged = [one for one in compared if one.won is not None]
    longer = np.array([one.other - one.own for one in compared], np.float64)
    features = np.array([
        (1.0, math.tanh((one.other - one.own) / longer.std(ddof=1)), gamed.difficulty[one.key])
        for one in judged
    ])  # fmt: skip
    x = np.concatenate([gamed.features, features])
    y = np.concatenate([gamed.wins, [one.won for one in judged]])
    rows = np.concatenate([np.full(len(gamed.wins), 0.1), np.ones(len(judged))])
    wanted = (1.8248710646, -2.0385495947, -0.9401991991)
    assert fitted(x, y, rows, 1.0) == pytest.approx(wanted, rel=1e-8)
    assert fitted(x, y, rows, 0.01).tolist() == [0.0, 0.0, 0.0]


def test_a_constant_alone_by_hand():
    """Where |w| + c n loss has no slope, the chance is the share of wins less 1 / (c n)."""
    y = np.array([1.0] * 7 + [0.0] * 3)
    (weight,) = fitted(np.ones((10, 1)), y, np.ones(10), 2.0)
    chance = 0.7 - 1.0 / (2.0 * 10)
    assert weight == pytest.approx(math.log(chance / (1.0 - chance)), abs=1e-9)
    # Two features that say the same do not harm.
    double = fitted(np.ones((10, 2)), y, np.ones(10), 2.0)
    assert double.sum() == pytest.approx(weight, abs=1e-6)


def test_all_wins_stay_finite():
    compared, gamed = drawn()
    won = [Compared(one.key, 1.0, one.own, one.other) for one in compared]
    found = length_controlled(won, gamed)
    assert 0.9 < found.share <= 1.0 and all(map(math.isfinite, found.weights))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[:4], "4 verdicts: the length-controlled share needs 5 or more"),
        (lambda rows: [Compared(one.key, 1.0, 5, 9) for one in rows], "nothing tells length"),
        (lambda rows: [*rows, Compared("805", 1.0, 5, 9)], "question 805: has no difficulty"),
    ],
)
def test_what_has_no_share(change, words):
    compared, gamed = drawn()
    with pytest.raises(BadUse, match=words):
        length_controlled(change(compared), gamed)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xfe", "no CSV file"),
        (b"", "holds no rows"),
        (HEAD.encode(), "holds no rows"),
        (b"index,preference\n1,0.5\n", "line 2: needs index, preference"),
        (f"{HEAD}\n1,0.5,nan,1,False\n".encode(), "line 2: needs"),
        (f"{HEAD}\n1,1.5,0,1,False\n".encode(), "line 2: needs"),
        (f"{HEAD}\n1,0.5,0,1,True\n".encode(), "line 2: needs"),
        (f"{HEAD}\n1,0.5\n".encode(), "line 2: needs"),
    ],
)
def test_another_file_is_refused(data, words):
    with pytest.raises(BadUse, match=words):
        parse_gamed(data, "df_gamed.csv")
