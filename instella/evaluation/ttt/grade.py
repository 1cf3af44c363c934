"""Graders of TTT-Bench: ours, and the published rule for comparison.

The published rule takes an answer as right when any capital letter of its box is one of the
right moves, so a box that lists every letter is always right. Ours takes it as right when it
names at least one move and every move that it names is right: hedging never gains.
"""

import re
from collections.abc import Callable, Sequence

from instella.rewards.extract import last_boxed
from instella.rewards.grade import CORRECT, NO_ANSWER, WRONG

_COMMAND = re.compile(r"\\[a-zA-Z]+")
_WORD = re.compile(r"[A-Za-z]+")
# Words that may stand beside a letter: "point E", "A or B".
_BESIDE = frozenset({"and", "or", "at", "point", "position", "vertex", "corner", "the"})


def named_moves(answer: str) -> str | None:
    """Letters that a boxed answer names, sorted; None when it holds any other word.

    LaTeX commands, braces and signs do not count; a run of capitals (``LM``) names each of
    them. A small letter names no point.
    """
    letters: set[str] = set()
    for word in _WORD.findall(_COMMAND.sub(" ", answer)):
        if word.isupper():
            letters.update(word)
        elif word.lower() not in _BESIDE:
            return None
    return "".join(sorted(letters))


def ours(gold: str, answer: str | None) -> str:
    """``correct``, ``wrong`` or ``no answer``: every move that is named is a right one.

    Args:
        gold: the right moves; any capital letter of it is one.
        answer: content of the last box, or None.
    """
    if answer is None or not answer.strip():
        return NO_ANSWER
    named = named_moves(answer)
    return CORRECT if named and set(named) <= right_moves(gold) else WRONG


def published(gold: str, answer: str | None) -> str:
    """As ``ours``, by the published rule: any capital letter of the box is a right move."""
    if answer is None or not answer.strip():
        return NO_ANSWER
    return CORRECT if right_moves(answer) & right_moves(gold) else WRONG


def right_moves(gold: str) -> set[str]:
    """Capital letters of a text such as ``L, M``."""
    return {letter for letter in gold if "A" <= letter <= "Z"}


GRADERS: dict[str, Callable[[str, str | None], str]] = {"ours": ours, "published": published}


def verdicts(gold: str, samples: Sequence[str], rule: str = "ours") -> list[str]:
    """The verdict on each response, judged by its last box."""
    return [GRADERS[rule](gold, last_boxed(sample)) for sample in samples]
