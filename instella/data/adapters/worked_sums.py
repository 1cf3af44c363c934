"""Adapter ``worked_sums``: sums of the generator chain_sum, with their steps written out.

A row's expression ``3 + 4 + 5`` becomes the question ``3+4+5=``, the worked steps
``3+4=7;7+5=12;\\boxed{12}`` and the answer ``12``.

Options

``form``             ``problem`` (question, answer), ``chat`` (question, worked steps) or
                     ``text`` (question and worked steps on two lines)
``terms``            [smallest, largest] number of terms
``operators``        ``+``: only additions; ``+-``: any (default)
``digits_at_most``   the largest digit that may stand in a term
``distinct``         each expression once (the key is then the expression)
``split``            ``train``, ``heldout`` or ``all`` (default)
``heldout_fraction`` share of the expressions that are held out; a keyed hash of the
                     expression decides, so the two splits never share one, whatever the
                     source
``heldout_terms``    only expressions with at least so many terms are held out (default 3),
                     so that every short fact can be learned
``carry_errors``     a careless teacher: where the units of an addition step make a carry,
                     the worked step forgets it with this probability, and the error runs
                     on to the boxed answer. It stands for the wrong solutions in data that
                     a model wrote, and leaves reinforcement learning something to mend.
                     The answer of a ``problem`` is always right.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.canonical import parse_json
from instella.data.adapters.files import lines, member
from instella.data.adapters.options import Options
from instella.data.documents import Conversation, Document, Message, Problem, Text
from instella.data.select import keyed_share
from instella.errors import VerificationError
from instella.recipe.settings import Part

ROWS = "rows.jsonl"
EXPRESSION = re.compile(r"\d+(?: [+-] \d+)*", re.ASCII)


@dataclass(frozen=True)
class Sum:
    """An expression: first term, then an operator and a term for each step."""

    terms: tuple[int, ...]
    operators: tuple[str, ...]

    @property
    def text(self) -> str:
        """The expression without blanks."""
        steps = zip(self.operators, self.terms[1:], strict=True)
        return str(self.terms[0]) + "".join(f"{operator}{term}" for operator, term in steps)

    @property
    def value(self) -> int:
        """The right result."""
        steps = zip(self.operators, self.terms[1:], strict=True)
        return self.terms[0] + sum(term if sign == "+" else -term for sign, term in steps)


@dataclass(frozen=True)
class Wanted:
    """The options, checked."""

    form: str
    terms: tuple[int, int] | None
    operators: str
    digits_at_most: int
    distinct: bool
    split: str
    heldout_fraction: float
    heldout_terms: int
    carry_errors: float


def read(part: Part, folder: Path) -> Iterator[Document]:
    """Documents of ``rows.jsonl`` in its order; key ``rows.jsonl#ROW`` (from 1)."""
    options = Options(part)
    wanted = Wanted(
        form=options.text("form", choices=("problem", "chat", "text")),
        terms=options.limits("terms"),
        operators=options.text("operators", "+-", choices=("+", "+-")),
        digits_at_most=options.whole("digits_at_most", 9),
        distinct=options.flag("distinct", False),
        split=options.text("split", "all", choices=("train", "heldout", "all")),
        heldout_fraction=options.share("heldout_fraction", 0.0),
        heldout_terms=options.whole("heldout_terms", 3, at_least=1),
        carry_errors=options.share("carry_errors", 0.0),
    )
    options.end()
    if wanted.split != "all" and wanted.heldout_fraction == 0.0:
        raise options.wrong("split", f"{wanted.split} needs heldout_fraction above 0")
    return _documents(folder, wanted)


def _documents(folder: Path, wanted: Wanted) -> Iterator[Document]:
    seen: set[str] = set()
    for number, line in lines(member(folder, ROWS)):
        item = _parse(parse_json(line, f"{ROWS} row {number}"), number)
        if not _is_wanted(item, wanted):
            continue
        key = f"{ROWS}#{number}"
        if wanted.distinct:
            key = item.text
            if key in seen:
                continue
            seen.add(key)
        yield _document(item, key, wanted)


def _parse(row: Any, number: int) -> Sum:
    try:
        expression, answer = row["metadata"]["expression"], row["answer"]
    except (KeyError, TypeError):
        raise VerificationError(f"{ROWS} row {number}: no expression or no answer") from None
    if not isinstance(expression, str) or not EXPRESSION.fullmatch(expression):
        raise VerificationError(
            f"{ROWS} row {number}: {expression!r} is no sum of numbers without sign"
        )
    first, *rest = expression.split(" ")
    item = Sum((int(first), *map(int, rest[1::2])), tuple(rest[0::2]))
    if answer != str(item.value):
        raise VerificationError(f"{ROWS} row {number}: {expression} is not {answer!r}")
    return item


def _is_wanted(item: Sum, wanted: Wanted) -> bool:
    if wanted.terms is not None:
        smallest, largest = wanted.terms
        if not smallest <= len(item.terms) <= largest:
            return False
    if wanted.operators == "+" and "-" in item.operators:
        return False
    if any(int(digit) > wanted.digits_at_most for term in item.terms for digit in str(term)):
        return False
    if wanted.split == "all":
        return True
    return is_held_out(item, wanted) == (wanted.split == "heldout")


def is_held_out(item: Sum, wanted: Wanted) -> bool:
    """Whether the expression belongs to the held-out split: decided by it alone."""
    if len(item.terms) < wanted.heldout_terms:
        return False
    return keyed_share("worked_sums" + item.text) < wanted.heldout_fraction


def _document(item: Sum, key: str, wanted: Wanted) -> Document:
    question = item.text + "="
    if wanted.form == "problem":
        return Problem(key, question, str(item.value))
    worked = worked_steps(item, key, wanted.carry_errors)
    if wanted.form == "text":
        return Text(key, f"{question}\n{worked}")
    return Conversation(key, (Message("user", question), Message("assistant", worked)))


def worked_steps(item: Sum, key: str, carry_errors: float) -> str:
    """The steps from left to right and the boxed result, errors included.

    Args:
        item: the sum.
        key: decides, with the number of the step (from 1), whether a carry is forgotten.
        carry_errors: probability of that, for each step that has a carry in its units.
    """
    total = item.terms[0]
    parts = []
    steps = zip(item.operators, item.terms[1:], strict=True)
    for step, (operator, term) in enumerate(steps, 1):
        result = total + term if operator == "+" else total - term
        carries = operator == "+" and total >= 0 and total % 10 + term % 10 >= 10
        if carries and keyed_share(f"{key} step {step}") < carry_errors:
            result -= 10
        parts.append(f"{total}{operator}{term}={result}")
        total = result
    return ";".join([*parts, f"\\boxed{{{total}}}"])
