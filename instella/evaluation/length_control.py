"""AlpacaEval's share of wins without the judge's taste for length (arXiv 2404.04475).

A logistic regression explains the verdicts by a constant (the model), the difference in length
and the difficulty of the instruction. The controlled share is the mean of what it predicts for
answers as long as the other's:

    logit P(win) = constant + a tanh((other - own) / s) + b difficulty

Lengths are in characters, ``s`` is the standard deviation of their difference. Rows in which the
other model plays against longer and shorter answers of itself, a fifth of the weight and without
the constant, keep ``a`` from being learned from a model that fits its length to winning. Weights
have an L1 penalty, chosen by cross-validation. Difficulties and those rows are AlpacaEval's
``df_gamed.csv``.

Features, weights of rows, penalties and folds are those of AlpacaEval 0.6
(``metrics/glm_winrate.py``, length_controlled_v1). Two things differ: the fit is carried to its
end, and a question's fold is its number modulo five, which there depends on how numpy sorts
equal numbers.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from instella.errors import BadUse

FOLDS = 5
PENALTIES = np.logspace(-4, 4, 10)
"""What the loss is multiplied with beside a penalty of one."""
GAMED_WEIGHT = 0.2 / 2.0
RESAMPLES = 500
_STEPS, _SWEEPS, _SMALLEST = 100, 50, 1e-10
_COLUMNS = ("index", "preference", "std_delta_len", "instruction_difficulty", "not_gamed_baseline")


@dataclass(frozen=True)
class Compared:
    """One question: who won, and how long both answers are, in characters.

    ``won`` is 1 for ours, 0 for the other, None without a verdict.
    """

    key: str
    won: float | None
    own: int
    other: int


@dataclass(frozen=True)
class Gamed:
    """``df_gamed.csv``: difficulty of each instruction by its number, and rows of the other
    model against itself: float64 [rows, 3] as ``constant, tanh, difficulty`` and [rows]."""

    difficulty: Mapping[str, float]
    features: np.ndarray
    wins: np.ndarray


@dataclass(frozen=True)
class Controlled:
    """The share, its interval of 95 %, and the weights: constant, length, difficulty."""

    share: float
    low: float
    high: float
    weights: tuple[float, float, float]


def parse_gamed(data: bytes, where: str) -> Gamed:
    """Read AlpacaEval's file.

    Raises:
        BadUse: no such columns, or a value that is no finite number.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8"))))
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadUse(f"{where}: no CSV file ({error}); give df_gamed.csv of AlpacaEval") from None
    difficulty: dict[str, float] = {}
    features, wins = [], []
    for number, row in enumerate(rows, 2):
        try:
            _, preference, length, hard = (float(row[name]) for name in _COLUMNS[:4])
            sound = all(map(math.isfinite, (preference, length, hard))) and 0 <= preference <= 1
        except (KeyError, TypeError, ValueError):
            sound = False
        if not sound or row["not_gamed_baseline"] != "False":
            raise BadUse(
                f"{where}, line {number}: needs {', '.join(_COLUMNS)}; give df_gamed.csv of "
                "AlpacaEval"
            )
        difficulty.setdefault(row["index"], hard)
        features.append((0.0, math.tanh(length), hard))
        wins.append(preference)
    if not rows:
        raise BadUse(f"{where}: holds no rows; give df_gamed.csv of AlpacaEval")
    return Gamed(difficulty, np.array(features), np.array(wins))


def length_controlled(compared: Sequence[Compared], gamed: Gamed, seed: int = 0) -> Controlled:
    """The share of wins at equal length; its interval is a percentile bootstrap of questions.

    Args:
        compared: one a question; those without a verdict are predicted, not learned from.
        gamed: AlpacaEval's file.
        seed: of the bootstrap, in which the penalty stays.

    Raises:
        BadUse: a question without a difficulty, fewer than five verdicts, or lengths that all
            differ by the same.
    """
    features = _features(compared, gamed)
    judged = [number for number, one in enumerate(compared) if one.won is not None]
    if len(judged) < FOLDS:
        raise BadUse(f"{len(judged)} verdicts: the length-controlled share needs {FOLDS} or more")
    wins = np.array([compared[number].won for number in judged], np.float64)
    own = np.arange(len(judged))
    x = np.concatenate([gamed.features, features[judged]])
    y = np.concatenate([gamed.wins, wins])
    row_weights = np.concatenate([np.full(len(gamed.wins), GAMED_WEIGHT), np.ones(len(wins))])
    penalty = _chosen_penalty(x, y, row_weights)
    weights = fitted(x, y, row_weights, penalty)
    random = np.random.Generator(np.random.PCG64(seed))
    found = []
    for _ in range(RESAMPLES):
        drawn = random.integers(len(own), size=len(own))
        counts = row_weights.copy()
        counts[len(gamed.wins) :] = np.bincount(drawn, minlength=len(own))
        again = fitted(x, y, counts, penalty, weights)
        found.append(_at_equal_length(features[np.array(judged)[drawn]], again))
    low, high = np.quantile(found, (0.025, 0.975))
    constant, length, difficulty = map(float, weights)
    share = _at_equal_length(features, weights)
    return Controlled(share, float(low), float(high), (constant, length, difficulty))


def _features(compared: Sequence[Compared], gamed: Gamed) -> np.ndarray:
    unknown = [one.key for one in compared if one.key not in gamed.difficulty]
    if unknown:
        raise BadUse(
            f"question {unknown[0]}: has no difficulty; question_id has to be the number that "
            "AlpacaEval's file gives it"
        )
    longer = np.array([one.other - one.own for one in compared], np.float64)
    spread = float(longer.std(ddof=1)) if len(longer) > 1 else 0.0
    if spread == 0.0:
        raise BadUse("all answers are longer than the other's by the same: nothing tells length")
    hard = [gamed.difficulty[one.key] for one in compared]
    return np.stack([np.ones(len(longer)), np.tanh(longer / spread), hard], axis=1)


def _at_equal_length(features: np.ndarray, weights: np.ndarray) -> float:
    return float(_chance(features * (1.0, 0.0, 1.0) @ weights).mean())


def _chosen_penalty(x: np.ndarray, y: np.ndarray, row_weights: np.ndarray) -> float:
    """Of the smallest loss on rows that were left out; of equal ones the strongest penalty."""
    fold = np.arange(len(y)) % FOLDS
    losses = []
    for penalty in PENALTIES:
        loss = 0.0
        for number in range(FOLDS):
            kept, left = fold != number, fold == number
            weights = fitted(x[kept], y[kept], row_weights[kept], penalty)
            loss += float((row_weights * _loss(x @ weights, y))[left].mean())
        losses.append(loss)
    return float(PENALTIES[int(np.argmin(losses))])


def fitted(
    x: np.ndarray,
    y: np.ndarray,
    row_weights: np.ndarray,
    penalty: float,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Weights that minimize ``sum(|w|) + penalty * sum(row_weights * loss)``, by Newton steps.

    Args:
        x: float64 [rows, features].
        y: float64 [rows], from 0 to 1.
        row_weights: float64 [rows].
        penalty: what the loss is multiplied with.
        start: where to begin; at 0 without it.
    """
    weights = np.zeros(x.shape[1]) if start is None else start.copy()

    def goal(at: np.ndarray) -> float:
        return float(np.abs(at).sum() + penalty * (row_weights * _loss(x @ at, y)).sum())

    value = goal(weights)
    for _ in range(_STEPS):
        chance = _chance(x @ weights)
        slope = penalty * (x.T @ (row_weights * (chance - y)))
        curvature = penalty * (x.T * (row_weights * chance * (1.0 - chance))) @ x
        step = _step(weights, slope, curvature + _SMALLEST * np.eye(len(slope)))
        rate = 1.0
        while goal(weights + rate * step) > value and rate > _SMALLEST:
            rate /= 2.0
        if rate * float(np.abs(step).max()) <= _SMALLEST:
            break
        weights = weights + rate * step
        value = goal(weights)
    return weights


def _step(weights: np.ndarray, slope: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """Least of the goal's quadratic model, one feature after another."""
    step = np.zeros(len(weights))
    for _ in range(_SWEEPS):
        before = step.copy()
        for k, bend in enumerate(np.diag(curvature)):
            free = weights[k] + step[k] - (slope[k] + curvature[k] @ step) / bend
            step[k] = np.sign(free) * max(abs(free) - 1.0 / bend, 0.0) - weights[k]
        if np.abs(step - before).max() <= _SMALLEST:
            break
    return step


def _chance(logit: np.ndarray) -> np.ndarray:
    """The logistic function, without overflow."""
    return np.exp(-np.logaddexp(0.0, -logit))


def _loss(logit: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Cross-entropy of each row."""
    return np.logaddexp(0.0, logit) - y * logit
