"""What a teacher said, taken apart and checked. A reply that fails is ``Rejected``.

Replies are untrusted: JSON is read strictly, templates are filled by our own rule and not
by ``str.format``, and names must be plain.
"""

import keyword
import re
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from instella.canonical import parse_json
from instella.errors import VerificationError
from instella.synthesis import quantities
from instella.synthesis.language import BUILTINS, TYPES

MAX_PARAMETERS = 20
MAX_VALUE = 10**9
MAX_GROWTH = 3
"""A reworded question or template may be so many times as long as the original."""

_FENCE = re.compile(r"```[a-zA-Z0-9]*\n(.*?)```", re.DOTALL)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}", re.ASCII)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_RESERVED = BUILTINS | TYPES | {"math", "solve"}

Row = dict[str, Any]


class Rejected(Exception):
    """A reply that does not pass; the text is the reason that the report counts."""


def code_in(reply: str) -> str:
    """The program in a reply: its last fenced block, or all of it."""
    blocks = _FENCE.findall(reply)
    code = str(blocks[-1]) if blocks else reply
    if "def solve" not in code:
        raise Rejected("no function solve")
    return code.strip() + "\n"


def _json_in(reply: str) -> Any:
    blocks = _FENCE.findall(reply)
    try:
        return parse_json((blocks[-1] if blocks else reply).encode("utf-8"), "reply")
    except VerificationError:
        raise Rejected("no JSON") from None


def abstraction_in(reply: str, question: str) -> tuple[str, list[Row]]:
    """Template and parameters (``name``, ``type``, ``value``) that give ``question`` back."""
    value = _json_in(reply)
    if not isinstance(value, dict) or set(value) != {"template", "parameters"}:
        raise Rejected("JSON of another form")
    template, parameters = value["template"], value["parameters"]
    if not isinstance(template, str) or not isinstance(parameters, list):
        raise Rejected("JSON of another form")
    if not 1 <= len(parameters) <= MAX_PARAMETERS:
        raise Rejected("no parameter, or too many")
    for item in parameters:
        _check_parameter(item)
    values = {item["name"]: item["value"] for item in parameters}
    if len(values) != len(parameters):
        raise Rejected("a parameter stands twice")
    if set(_PLACEHOLDER.findall(template)) != set(values):
        raise Rejected("template and parameters differ")
    if len(template) > MAX_GROWTH * len(question) + 200:
        raise Rejected("template too long")
    if quantities.skeleton(fill(template, values)) != quantities.skeleton(question):
        raise Rejected("template does not give the question back")
    return template, parameters


def _check_parameter(item: Any) -> None:
    if not isinstance(item, dict) or set(item) != {"name", "type", "value"}:
        raise Rejected("JSON of another form")
    name = item["name"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Rejected("an unusable parameter name")
    if keyword.iskeyword(name) or name in _RESERVED:
        raise Rejected("an unusable parameter name")
    if item["type"] not in ("int", "float") or not _is_of_type(item["value"], item["type"]):
        raise Rejected("a parameter is not of its type")


def _is_of_type(value: Any, kind: str) -> bool:
    """A number from 0 to a billion with at most six decimals."""
    wanted = (int,) if kind == "int" else (int, float)
    if isinstance(value, bool) or not isinstance(value, wanted) or not 0 <= value <= MAX_VALUE:
        return False
    return isinstance(value, int) or round(value, quantities.DECIMALS) == value


def fill(template: str, values: Mapping[str, int | float]) -> str:
    """The template with each ``{name}`` replaced by its number; others stay as they are."""

    def number(match: re.Match[str]) -> str:
        name = match.group(1)
        return quantities.written(values[name]) if name in values else match.group()

    return _PLACEHOLDER.sub(number, template)


def value_sets_in(reply: str) -> list[Any]:
    """The list of value sets in a reply, each still to be checked."""
    value = _json_in(reply)
    if not isinstance(value, list):
        raise Rejected("JSON of another form")
    return value


def check_values(values: Any, parameters: list[Row], seen: list[Row]) -> dict[str, int | float]:
    """One value set, if it is plausible and new.

    Args:
        values: as the teacher gave it.
        parameters: of the problem.
        seen: value sets that are taken, the problem's own included.
    """
    kinds = {item["name"]: item["type"] for item in parameters}
    if not isinstance(values, dict) or set(values) != set(kinds):
        raise Rejected("values for other parameters")
    if not all(_is_of_type(values[name], kind) for name, kind in kinds.items()):
        raise Rejected("a value is not of its type")
    if any(value == 0 for value in values.values()):
        raise Rejected("a value is zero")
    if values in seen:
        raise Rejected("values that are known")
    return dict(values)


def check_answer(value: int | float) -> int:
    """A program's result as the whole, non-negative number an answer has to be."""
    exact = quantities.rounded(value)
    if exact.denominator != 1:
        raise Rejected("the answer is no whole number")
    if not 0 <= exact <= MAX_VALUE:
        raise Rejected("the answer is negative or too large")
    return int(exact)


def question_in(reply: str, values: Mapping[str, int | float], original: str) -> str:
    """A new question that states every value and is another one than ``original``."""
    question = reply.strip()
    if not question or _PLACEHOLDER.search(question) or "```" in question:
        raise Rejected("no question")
    if len(question) > MAX_GROWTH * len(original) + 200:
        raise Rejected("question too long")
    needed = Counter(quantities.rounded(value) for value in values.values())
    if needed - quantities.values_in(question):
        raise Rejected("a value is missing from the question")
    if quantities.skeleton(question) == quantities.skeleton(original):
        raise Rejected("the question is the original")
    return question


def solution_in(reply: str, answer: Fraction) -> str:
    """A worked solution whose last number is the program's answer."""
    solution = reply.strip()
    if len(solution) > quantities.MAX_CHARACTERS:
        raise Rejected("solution too long")
    found = quantities.last_number(solution)
    if found is None:
        raise Rejected("no number in the solution")
    if found != answer:
        raise Rejected("the solution ends in another number")
    return solution
