"""Answers in one spelling, and the verdicts that need no algebra.

``tidy`` keeps the LaTeX and changes its spelling only; ``decide`` compares two tidied
answers as text, as exact numbers (``fractions.Fraction``) and as times of the day. What
it leaves open is for the computer algebra of ``instella.rewards.symbolic``.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

# A decimal with at least so many significant digits may stand for the number it rounds.
ROUNDED_DIGITS = 6
MAX_EXPONENT = 400

_UNICODE = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2012\u2013\ufe63\uff0d", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2005\u2007\u2008\u2009\u200a\u202f\u3000", " "),
        **dict.fromkeys("\u200b\u200e\u200f\u2060\ufeff", None),
        **dict.fromkeys(map(chr, range(0x202A, 0x202F)), None),
        **dict.fromkeys(map(chr, range(0x2066, 0x206A)), None),
        "\u00d7": r"\times ",
        "\u00b7": r"\cdot ",
        "\u03c0": r"\pi ",
        "\u221e": r"\infty ",
        "\u00b1": r"\pm ",
        "\u222a": r"\cup ",
        "\u00b0": r"^\circ",
        "\uff05": r"%",
    }
)
_TIDY = (
    (re.compile(r"\\?\$|(?<!\\)\\[()\[\]]|\\displaystyle(?![a-zA-Z])"), ""),
    (re.compile(r"\\(?:left|right)(?![a-zA-Z])\s*\.?"), ""),
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"(?<!\\)\\!\s*"), ""),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"(?<!\\)\\(?:[,;:]|q?quad(?![a-zA-Z])|(?=\s))|~"), " "),
    (re.compile(r"\^\s*(?:\\circ(?![a-zA-Z])|\{\s*\\circ\s*\})|\\degree(?![a-zA-Z])"), r"^\\circ"),
    (re.compile(r"\\(?:text|mbox)\s*\{\s*(?:percent(?:age)?|pct)\s*\}", re.I), "%"),
    (re.compile(r"(?<=[\d})])\s*(?:\\?%|\b(?:percent(?:age)?|pct)\b\.?)", re.I), r"\\%"),
    (re.compile(r"\s+"), " "),
    (re.compile(r"\\frac\s*(\d)\s*(\d)(?!\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s*(\d)\s*\{"), r"\\frac{\1}{"),
    (re.compile(r"(\\frac\s*\{[^{}]*\})\s*(\d)"), r"\1{\2}"),
)
_WORDS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|rm)\s*\{([^{}]*)\}")
_LOOSE_BLANK = re.compile(r"(?<![a-zA-Z0-9]) | (?![a-zA-Z0-9])")
_BASED = re.compile(r"([0-9A-Z]+)_(?:\{(\d{1,2})\}|(\d{1,2}))")
_CHOICE = re.compile(r"\(([A-Z])\)")
_UNIT_IN_BRACES = re.compile(r"\\(?:text|mbox|mathrm)\s*\{([^{}]*)\}\s*(?:\^\s*(?:\d|\{\d\}))?$")
_UNIT_WORD = re.compile(
    r"(?<=[\d})] )(?:(?:sq(?:uare|\.)?|cubic) )?(?:units?|degrees?|dollars?|cents?|inch(?:es)?|"
    r"feet|foot|ft|yards?|miles?|mm|cm|km|met(?:er|re)s?|kg|grams?|pounds?|seconds?|minutes?|"
    r"hours?|days?|weeks?|months?|years?|people|students?)$"
)
_UNIT_NAMES = {
    "degrees": "degree", "dollars": "dollar", "cents": "cent", "inches": "inch", "in": "inch",
    "feet": "foot", "ft": "foot", "units": "unit", "miles": "mile", "yards": "yard",
    "meters": "m", "meter": "m", "hours": "hour", "minutes": "minute", "seconds": "second",
    "days": "day", "years": "year", "weeks": "week", "months": "month",
}  # fmt: skip
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*([ap]\.?m\.?)?", re.I)
_UNSIGNED = r"(?:\d{1,3}(?:,\s?\d{3})+|\d+)"
_DECIMAL = re.compile(rf"([+-]?)\s?({_UNSIGNED}?)(?:\.(\d*))?")
_QUOTIENT = re.compile(
    rf"([+-]?)\s?(?:(\d+)\s?)?\\frac\s?\{{\s?([+-]?\d+)\s?\}}\s?\{{\s?([+-]?\d+)\s?\}}"
    rf"|([+-]?)\s?(?:(\d+) )?({_UNSIGNED})\s?/\s?({_UNSIGNED})"
)
_SCIENTIFIC = re.compile(r"(.+?)\s?\\(?:times|cdot)\s?10\s?\^\s?(?:\{\s?(-?\d{1,3})\s?\}|(\d))")


@dataclass(frozen=True)
class Number:
    """An exact number as it was written; ``value`` leaves the percent sign out.

    ``digits`` are the significant ones of a decimal and ``unit`` is one of its last
    decimal place; both None for integers and fractions.
    """

    value: Fraction
    percent: bool = False
    digits: int | None = None
    unit: Fraction | None = None


def tidy(text: str) -> str:
    """One spelling of dollars, blanks, fractions, brackets, degrees and percent signs."""
    text = text.translate(_UNICODE)
    for pattern, replacement in _TIDY:
        text = pattern.sub(replacement, text)
    text = text.strip()
    while text.endswith(".") and not text.endswith(".."):
        text = text[:-1].rstrip()
    return text


def without_units(gold: str, answer: str) -> tuple[str, str]:
    """Two tidied answers without their units, unless each names another unit.

    An angle's degree sign goes the same way: ``90^\\circ`` and ``90`` agree.
    """
    gold_value, gold_unit = _split_unit(gold)
    answer_value, answer_unit = _split_unit(answer)
    if gold_unit and answer_unit and gold_unit != answer_unit:
        return gold, answer
    return gold_value, answer_value


def _split_unit(text: str) -> tuple[str, str]:
    if text.endswith(r"^\circ"):
        return text.removesuffix(r"^\circ").rstrip(), "degree"
    match = _UNIT_IN_BRACES.search(text) or _UNIT_WORD.search(text)
    if match is None or not text[: match.start()].strip():
        return text, ""
    name = match.group(1) if match.re is _UNIT_IN_BRACES else match.group()
    name = name.strip().lower().rstrip(".")
    return text[: match.start()].rstrip(), _UNIT_NAMES.get(name, name)


def plain(text: str) -> str:
    """A tidied answer as bare text: words out of their braces, no loose blanks."""
    for _ in range(3):
        text = _WORDS.sub(r"\1", text)
    text = _LOOSE_BLANK.sub("", " ".join(text.split()))
    choice = _CHOICE.fullmatch(text)
    return choice.group(1) if choice else text


def decide(gold: str, answer: str) -> bool | None:
    """Whether two tidied answers are equal; None when that takes algebra."""
    gold, answer = without_units(gold, answer)
    if plain(gold) == plain(answer):
        return bool(plain(gold))
    based = _BASED.fullmatch(plain(gold)), _BASED.fullmatch(plain(answer))
    if based[0] and based[1]:
        return _in_base(based[0]) is not None and _in_base(based[0]) == _in_base(based[1])
    if based[0]:
        # The question names the base, so an answer may leave it out.
        return based[0].group(1) == plain(answer)
    times = _TIME.fullmatch(plain(gold)), _TIME.fullmatch(plain(answer))
    if times[0] or times[1]:
        return bool(times[0] and times[1] and _same_time(times[0], times[1]))
    left, right = number(gold), number(answer)
    if left is None or right is None:
        return None
    return _equal_numbers(left, right)


def _in_base(match: re.Match[str]) -> int | None:
    base = int(match.group(2) or match.group(3))
    try:
        return int(match.group(1), base) if base >= 2 else None
    except ValueError:
        return None


def _same_time(left: re.Match[str], right: re.Match[str]) -> bool:
    if [int(part or 0) for part in left.groups()[:3]] != [
        int(part or 0) for part in right.groups()[:3]
    ]:
        return False
    halves = {(match.group(4) or "").lower().replace(".", "") for match in (left, right)}
    return len(halves - {""}) <= 1


def _equal_numbers(left: Number, right: Number) -> bool:
    """Equal as written, or as percentage and share: 28 % is 28 and is 0.28."""
    if _close(left, right):
        return True
    if left.percent == right.percent:
        return False
    return _close(_share(left), _share(right))


def _share(number: Number) -> Number:
    if not number.percent:
        return number
    unit = None if number.unit is None else number.unit / 100
    return Number(number.value / 100, False, number.digits, unit)


def _close(left: Number, right: Number) -> bool:
    difference = abs(left.value - right.value)
    if difference == 0:
        return True
    return any(
        number.digits is not None
        and number.unit is not None
        and number.digits >= ROUNDED_DIGITS
        and difference * 2 <= number.unit
        for number in (left, right)
    )


def number(text: str) -> Number | None:
    """The exact value of a tidied integer, decimal, fraction, mixed number or a x 10^n.

    Thousands may be grouped by commas. None for anything else, also for a denominator
    of zero, so that what looks almost like a number is never guessed.
    """
    text = text.strip()
    percent = text.endswith(r"\%")
    if percent:
        text = text.removesuffix(r"\%").rstrip()
    scientific = _SCIENTIFIC.fullmatch(text)
    if scientific:
        mantissa = number(scientific.group(1))
        exponent = int(scientific.group(2) or scientific.group(3))
        if mantissa is None or mantissa.percent or abs(exponent) > MAX_EXPONENT:
            return None
        return Number(mantissa.value * Fraction(10) ** exponent, percent)
    quotient = _QUOTIENT.fullmatch(text)
    if quotient:
        value = _quotient(quotient)
        return None if value is None else Number(value, percent)
    return _decimal(text, percent)


def _quotient(match: re.Match[str]) -> Fraction | None:
    groups = match.groups()
    sign, whole, top, bottom = groups[:4] if groups[2] is not None else groups[4:]
    numerator, denominator = _integer(top), _integer(bottom)
    if denominator == 0 or (whole is not None and (numerator < 0 or denominator < 0)):
        return None
    value = Fraction(numerator, denominator) + _integer(whole or "0")
    return -value if sign == "-" else value


def _integer(digits: str) -> int:
    return int(digits.replace(",", "").replace(" ", ""))


def _decimal(text: str, percent: bool) -> Number | None:
    match = _DECIMAL.fullmatch(text)
    if match is None:
        return None
    sign, whole, fraction = match.group(1), match.group(2), match.group(3)
    if not whole and not fraction:
        return None
    whole = whole.replace(",", "").replace(" ", "")
    digits = whole + (fraction or "")
    value = Fraction(int(digits), 10 ** len(fraction or ""))
    value = -value if sign == "-" else value
    if not fraction:
        return Number(value, percent)
    return Number(value, percent, len(digits.lstrip("0")), Fraction(1, 10 ** len(fraction)))
