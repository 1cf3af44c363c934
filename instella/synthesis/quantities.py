"""Numbers in a text: where they stand, what they are worth, and how they are written."""

import re
from collections import Counter
from fractions import Fraction

PATTERN = re.compile(r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?")
DECIMALS = 6
MAX_LENGTH = 20
"""Characters of a number; what is longer is no quantity of a school problem."""


MAX_CHARACTERS = 8000
"""Of a question or a solution."""


def is_ordinary(text: str) -> bool:
    """Whether a text is short enough, and so is each of its numbers."""
    return len(text) <= MAX_CHARACTERS and all(
        len(match.group()) <= MAX_LENGTH for match in PATTERN.finditer(text)
    )


def parse(text: str) -> Fraction:
    """The value of a match of ``PATTERN``."""
    return Fraction(text.replace(",", ""))


def values_in(text: str) -> Counter[Fraction]:
    """How often each number stands in a text, signs not read."""
    found = (match.group() for match in PATTERN.finditer(text))
    return Counter(parse(item) for item in found if len(item) <= MAX_LENGTH)


def last_number(text: str) -> Fraction | None:
    """The last number of a text, with the minus that stands directly before it."""
    last = None
    for match in PATTERN.finditer(text):
        last = match
    if last is None or len(last.group()) > MAX_LENGTH:
        return None
    value, start = parse(last.group()), last.start()
    before = text[:start]
    negative = before.endswith("-") and not re.search(r"(?:[0-9)]\s?|\w)-\Z", before)
    return -value if negative else value


def rounded(value: int | float) -> Fraction:
    """A program's result, a float rounded to six decimals."""
    return Fraction(value) if isinstance(value, int) else Fraction(repr(round(value, DECIMALS)))


def written(value: int | float | Fraction) -> str:
    """A number as a person writes it: no exponent, at most six decimals, none if whole."""
    exact = value if isinstance(value, Fraction) else rounded(value)
    if exact.denominator == 1:
        return str(exact.numerator)
    scaled = round(abs(exact) * 10**DECIMALS)
    whole, rest = divmod(scaled, 10**DECIMALS)
    sign = "-" if exact < 0 else ""
    return f"{sign}{whole}.{rest:0{DECIMALS}d}".rstrip("0")


def skeleton(text: str) -> tuple[tuple[str, ...], tuple[Fraction | str, ...]]:
    """A text as its words between numbers, blanks made one, and its numbers.

    What is too long to be a quantity stays the text it is.
    """
    words = tuple(" ".join(piece.split()) for piece in PATTERN.split(text))
    found = [match.group() for match in PATTERN.finditer(text)]
    return words, tuple(parse(item) if len(item) <= MAX_LENGTH else item for item in found)
