"""Limits on what is worth grading: decided by counting, never by a clock.

A text or an expression beyond them is *refused*, which counts as wrong. They stand far
above the answers of GSM8K, MATH and AIME (longest gold answer: 53 characters) and far
below what keeps a computer algebra system busy for minutes.
"""

import re
from typing import Any

MAX_CHARACTERS = 600
MAX_DEPTH = 24
MAX_DIGITS = 120
MAX_PARSE_TIME_DIGITS = 4
MAX_NODES = 400
MAX_BITS = 1 << 17
MAX_CALLS = 1_000_000

_DIGITS = re.compile(r"\d+")
# What the parser evaluates while it reads, before a tree exists that could be measured.
_EVALUATED = re.compile(r"\\(?:[dt]?binom|choose|Gamma|gamma|gcd|lcm|operatorname|det|exp)")
_BUILDERS = re.compile(r"\\operatorname\s*\{\s*(?:eye|zeros|ones|diag|[hv]stack)\s*\}")


def refuse_text(text: str) -> str | None:
    """Why ``text`` is not worth parsing, or None when it is."""
    if len(text) > MAX_CHARACTERS:
        return f"longer than {MAX_CHARACTERS} characters"
    depth = deepest = 0
    for character in text:
        if character in "{([":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "})]":
            depth -= 1
    if deepest > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH}"
    longest = max((len(run) for run in _DIGITS.findall(text)), default=0)
    if longest > MAX_DIGITS:
        return f"a number of more than {MAX_DIGITS} digits"
    if _BUILDERS.search(text):
        return "builds a matrix by its size"
    if longest > MAX_PARSE_TIME_DIGITS and _EVALUATED.search(text):
        return f"a function of a number of more than {MAX_PARSE_TIME_DIGITS} digits"
    return None


def refuse_tree(expression: Any) -> str | None:
    """Why an unevaluated SymPy expression is not worth evaluating, or None when it is.

    The size of a node is an upper bound of log2 of its magnitude, with every symbol
    counted as 2: a power by a number multiplies the size of its base, a factorial of n
    has n log2(n).
    """
    try:
        _size(expression, _Counter())
    except _TooLargeError as error:
        return str(error)
    return None


class _TooLargeError(Exception):
    pass


class _Counter:
    def __init__(self) -> None:
        self.nodes = 0

    def one(self) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _TooLargeError(f"more than {MAX_NODES} operations")


def _size(node: Any, counter: _Counter) -> int:
    counter.one()
    bits = _leaf_size(node)
    if bits is None:
        bits = _inner_size(node, counter)
    if bits > MAX_BITS:
        raise _TooLargeError(f"a number of more than {MAX_BITS} bits")
    return bits


def _leaf_size(node: Any) -> int | None:
    if getattr(node, "is_Rational", False):
        return max(int(node.p).bit_length(), int(node.q).bit_length(), 1)
    if getattr(node, "is_Float", False):
        _, _, exponent, bits = node._mpf_
        return abs(exponent) + bits + 1
    return None if getattr(node, "args", ()) else 2


def _inner_size(node: Any, counter: _Counter) -> int:
    sizes = [_size(item, counter) for item in node.args]
    kind = type(node).__name__
    if kind == "Pow":
        return sizes[0] * _magnitude(node.args[1], sizes[1])
    if kind == "exp":
        return 2 * _magnitude(node.args[0], sizes[0])
    if kind in ("factorial", "factorial2", "gamma"):
        return _magnitude(node.args[0], sizes[0]) * sizes[0]
    if kind in ("Sum", "Product"):
        terms = sum(_magnitude(bound, _size(bound, counter)) for bound in _bounds(node))
        return sizes[0] * max(terms, 1)
    if kind == "Mul":
        return sum(sizes)
    return max(sizes) + len(sizes)


def _bounds(node: Any) -> list[Any]:
    return [
        bound
        for limits in node.args[1:]
        for bound in limits.args[1:]
        if getattr(bound, "is_finite", None) is not False
    ]


def _magnitude(node: Any, size: int) -> int:
    """Upper bound of the magnitude of ``node``, at least 1 and cut where it is too much."""
    if getattr(node, "is_Rational", False):
        return max(1, -(-abs(int(node.p)) // int(node.q)))
    if node.free_symbols:
        # Nothing computes such a power or factorial, whatever its symbols may stand for.
        return 1
    return 1 << min(size, MAX_BITS.bit_length() + 1)
