"""Equality of two answers by computer algebra: math-verify over latex2sympy.

Only the LaTeX grammar reads the text. SymPy's own reader of strings runs ``eval``, and
the grammar hands it the digits of numbers; ``install_guards`` replaces it by one that
takes a plain number and nothing else, so no text of an answer reaches ``eval``.
"""

import re
from typing import Any

import sympy

# It reads names as text while it loads, which the guard below would refuse later.
import sympy.physics.units
from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
from math_verify import grader
from sympy.parsing import sympy_parser

from instella.rewards.limits import refuse_tree

_NUMBER = re.compile(r"(\d+)(?:/(\d+))?|\d*\.\d+|\d+\.")
# Units are taken off beforehand; here they would turn 3t into 3.
_SPELLING = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
)
# Two numbers agree when they do to so many decimal digits, relative to the larger.
EXACT_DIGITS = 20
DECIMAL_DIGITS = 5


class Refused(Exception):
    """An expression beyond the limits; the text says which."""


def install_guards() -> None:
    """Make this process's SymPy refuse text that is not a number, and compare strictly.

    math-verify drops numbers below 1e-15 to zero before it compares, so that 1/2004!
    equals 1/2006!; here numbers are compared relative to their size, wherever they stand.
    """
    sympy_parser.parse_expr = _read_number
    original = grader.sympy_numeric_eq

    def numeric_eq(gold: Any, answer: Any, float_rounding: int, numeric_precision: int) -> bool:
        if not isinstance(gold, sympy.Expr) or not isinstance(answer, sympy.Expr):
            return bool(original(gold, answer, float_rounding, numeric_precision))
        if gold.free_symbols or answer.free_symbols:
            return False
        if _percent_of(gold, answer) or _percent_of(answer, gold):
            return True
        return _same_number(gold, answer)

    grader.sympy_numeric_eq = numeric_eq


def _read_number(text: Any, *_: Any, **__: Any) -> Any:
    match = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("only a plain number may be read")
    if "." in text:
        return sympy.Float(text)
    return sympy.Rational(int(match.group(1)), int(match.group(2) or 1))


def _percent_of(left: Any, right: Any) -> bool:
    value = grader.get_pct_val(left)
    return value is not None and grader.get_pct_val(right, right) == value


def _same_number(left: Any, right: Any) -> bool:
    digits = DECIMAL_DIGITS if left.has(sympy.Float) or right.has(sympy.Float) else EXACT_DIGITS
    a, b = (grader.safe_sympy_doit(item).evalf(EXACT_DIGITS + 10) for item in (left, right))
    if not (a.is_number and b.is_number and a.is_finite and b.is_finite):
        return False
    larger = max(abs(a), abs(b))
    return bool(abs(a - b) <= larger * sympy.Rational(1, 10**digits))


def judge(gold: str, answer: str) -> bool:
    """Whether ``answer`` equals ``gold``, both tidied; False when either is no mathematics.

    Raises:
        Refused: the expressions are beyond ``instella.rewards.limits``.
    """
    parsed = []
    for text in (gold, answer):
        try:
            expression = _parse(text)
        except (RecursionError, MemoryError):
            raise
        except Exception:
            # The grammar's ways to say that a text is not mathematics are not one class.
            return False
        if not isinstance(expression, (sympy.Basic, sympy.MatrixBase)):
            return False
        reason = refuse_tree(expression)
        if reason is not None:
            raise Refused(reason)
        if expression.has(sympy.zoo, sympy.nan):
            return False
        parsed.append(expression)
    return bool(grader.verify(parsed[0], parsed[1], timeout_seconds=None))


def _parse(text: str) -> Any:
    spelled = normalize_latex(text, _SPELLING)
    is_real = not grader.should_treat_as_complex(spelled)
    return latex2sympy(spelled, is_real=is_real, normalization_config=None)
