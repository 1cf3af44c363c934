"""Arithmetic and functions of the interpreter: each bounded before it is computed.

Nothing here depends on the machine: integers are exact, floats use + - * / and the square
root only, which IEEE 754 rounds correctly everywhere; powers of floats are products.
"""

import math
import operator
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from instella.synthesis.language import MAX_BITS, Refused

MAX_STEPS = 200_000
MAX_WEIGH_DEPTH = 20
MAX_DIGITS = 100
MAX_FACTORIAL = 300
MAX_COMBINATIONS = 1000

_SCALARS = (bool, int, float, str, type(None))
_SIZED = (str, list, tuple, dict, range)


class Budget:
    """Steps left; one for each node evaluated and each item touched."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps

    def charge(self, steps: int = 1) -> None:
        """Spend; Refused when there is nothing left."""
        self._left -= steps
        if self._left < 0:
            raise Refused("too many operations")

    def weigh(self, value: Any) -> None:
        """Spend one step for each item inside ``value``, shared ones counted each time."""
        waiting: list[tuple[Any, int]] = [(value, 0)]
        while waiting:
            item, depth = waiting.pop()
            if depth > MAX_WEIGH_DEPTH:
                raise Refused(f"values nested deeper than {MAX_WEIGH_DEPTH}")
            if isinstance(item, _SIZED):
                self.charge(len(item))
            if isinstance(item, (list, tuple)):
                waiting += [(inner, depth + 1) for inner in item]
            elif isinstance(item, dict):
                waiting += [(inner, depth + 1) for pair in item.items() for inner in pair]


def checked(value: Any) -> Any:
    """``value`` if it is of the language and small enough."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise Refused(f"a number of more than {MAX_BITS} bits")
    if not isinstance(value, (*_SCALARS, list, tuple, dict, range)):
        raise Refused(f"a value of type {type(value).__name__}")
    return value


def power(base: Any, exponent: Any) -> Any:
    """``base ** exponent`` for numbers; fractional exponents other than 0.5 are refused."""
    if not isinstance(base, (int, float)) or not isinstance(exponent, (int, float)):
        raise TypeError("power of what is no number")
    if isinstance(exponent, float):
        if exponent == 0.5 and base >= 0:
            return math.sqrt(base)
        if not exponent.is_integer() or abs(exponent) > MAX_BITS:
            raise Refused("a power with a fractional exponent")
        base, exponent = float(base), int(exponent)
    bits = base.bit_length() if isinstance(base, int) else 1
    if bits * abs(exponent) > MAX_BITS:
        raise Refused(f"a number of more than {MAX_BITS} bits")
    if isinstance(base, int) and exponent >= 0:
        return base**exponent
    if base == 0 and exponent < 0:
        raise ZeroDivisionError("zero to a negative power")
    result = 1.0
    factor = float(base)
    left = abs(exponent)
    while left:
        if left & 1:
            result *= factor
        factor *= factor
        left >>= 1
    return 1.0 / result if exponent < 0 else result


def multiply(left: Any, right: Any) -> Any:
    """``left * right``; a repeated text or list may not get long."""
    for many, times in ((left, right), (right, left)):
        is_repetition = isinstance(many, (str, list, tuple)) and isinstance(times, int)
        if is_repetition and len(many) * max(times, 0) > MAX_STEPS:
            raise Refused("too many operations")
    return left * right


def remainder(left: Any, right: Any) -> Any:
    """``left % right`` of numbers."""
    if isinstance(left, str):
        raise Refused("a format string")
    return left % right


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": multiply,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": remainder,
    "Pow": power,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "In": lambda left, right: left in right,
    "NotIn": lambda left, right: left not in right,
}
UNARY: dict[str, Callable[[Any], Any]] = {
    "UAdd": operator.pos,
    "USub": operator.neg,
    "Not": operator.not_,
}


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise TypeError("a number is needed")
    return value


def _rounded(value: Any, digits: Any = None) -> Any:
    if digits is not None and abs(digits) > MAX_DIGITS:
        raise Refused("rounding to too many digits")
    return round(_number(value), digits)


def _product(values: Any, start: Any = 1) -> Any:
    result = start
    for value in values:
        result = checked(_number(result) * _number(value))
    return result


def _total(values: Any, start: Any = 0) -> Any:
    result = start
    for value in values:
        result = checked(_number(result) + _number(value))
    return result


def _bounded(function: Callable[..., int], most: int) -> Callable[..., int]:
    def call(*values: Any) -> int:
        if any(isinstance(value, int) and value > most for value in values):
            raise Refused("a factorial or binomial of too large a number")
        return function(*values)

    return call


def _listed(function: Callable[..., Iterator[Any]]) -> Callable[..., list[Any]]:
    return lambda *values: list(islice(function(*values), MAX_STEPS))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": lambda value: abs(_number(value)),
    "all": all,
    "any": any,
    "bool": bool,
    "divmod": lambda left, right: divmod(_number(left), _number(right)),
    "enumerate": _listed(enumerate),
    "float": lambda value=0: float(_number(value)),
    "int": lambda value=0: int(_number(value)),
    "len": len,
    "list": list,
    "max": max,
    "min": min,
    "pow": power,
    "range": range,
    "reversed": _listed(reversed),
    "round": _rounded,
    "sorted": sorted,
    "sum": _total,
    "tuple": tuple,
    "zip": _listed(zip),
}
MATH_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil": lambda value: math.ceil(_number(value)),
    "comb": _bounded(math.comb, MAX_COMBINATIONS),
    "fabs": lambda value: math.fabs(_number(value)),
    "factorial": _bounded(math.factorial, MAX_FACTORIAL),
    "floor": lambda value: math.floor(_number(value)),
    "gcd": math.gcd,
    "isqrt": math.isqrt,
    "lcm": math.lcm,
    "prod": _product,
    "sqrt": lambda value: math.sqrt(_number(value)),
    "trunc": lambda value: math.trunc(_number(value)),
}
