"""Adapters over rows: ``text_rows``, ``chat_rows``, ``preference_rows``, ``problem_rows``,
``choice_rows``.

All take ``files`` (patterns, default all row files). The other options name columns, a
nested one as ``outer.inner``:

text_rows        ``text``
chat_rows        ``messages`` (a list of turns; ``role`` and ``content`` name the fields of a
                 turn, ``roles`` maps other role names), or ``question`` and ``answer``
preference_rows  ``question``, ``chosen``, ``rejected``
problem_rows     ``question``, ``answer``
choice_rows      ``question``, ``choices`` (a list of texts), ``gold`` (an index from 0)
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from instella.data.adapters.options import Options
from instella.data.adapters.rows import Row, read_rows
from instella.data.adapters.turns import TurnForm, messages
from instella.data.documents import (
    ROLES,
    Choice,
    Conversation,
    Message,
    Preference,
    Problem,
    Text,
)
from instella.errors import VerificationError
from instella.recipe.settings import Part

D = TypeVar("D")


def read_text(part: Part, folder: Path) -> Iterator[Text]:
    """One ``Text`` a row."""
    options = Options(part)
    files = options.texts("files", ("*",))
    text = options.text("text", "text")
    options.end()
    return _each(folder, files, (text,), lambda row: Text(row.key, row.text(text)))


def read_problem(part: Part, folder: Path) -> Iterator[Problem]:
    """One ``Problem`` a row."""
    options = Options(part)
    files = options.texts("files", ("*",))
    question, answer = options.text("question", "question"), options.text("answer", "answer")
    options.end()

    def document(row: Row) -> Problem:
        return Problem(row.key, row.text(question), row.text(answer))

    return _each(folder, files, (question, answer), document)


def read_preference(part: Part, folder: Path) -> Iterator[Preference]:
    """One ``Preference`` a row."""
    options = Options(part)
    files = options.texts("files", ("*",))
    question = options.text("question", "question")
    chosen, rejected = options.text("chosen", "chosen"), options.text("rejected", "rejected")
    options.end()

    def document(row: Row) -> Preference:
        return Preference(row.key, row.text(question), row.text(chosen), row.text(rejected))

    return _each(folder, files, (question, chosen, rejected), document)


def read_choice(part: Part, folder: Path) -> Iterator[Choice]:
    """One ``Choice`` a row."""
    options = Options(part)
    files = options.texts("files", ("*",))
    question, gold = options.text("question", "question"), options.text("gold", "gold")
    choices = options.text("choices", "choices")
    options.end()

    def document(row: Row) -> Choice:
        items, index = row.value(choices), row.value(gold)
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise VerificationError(f"{row.key}: column {choices} is not a list of texts")
        if type(index) is not int or not 0 <= index < len(items):
            raise VerificationError(
                f"{row.key}: column {gold}: {index!r} is no index of {len(items)} choices"
            )
        return Choice(row.key, row.text(question), tuple(items), index)

    return _each(folder, files, (question, choices, gold), document)


def read_chat(part: Part, folder: Path) -> Iterator[Conversation]:
    """One ``Conversation`` a row."""
    options = Options(part)
    files = options.texts("files", ("*",))
    question, answer = options.optional_text("question"), options.optional_text("answer")
    if question is not None or answer is not None:
        if question is None or answer is None:
            raise options.wrong("question", "question and answer go together")
        options.end()
        return _each(folder, files, (question, answer), _exchange(question, answer))
    column = options.text("messages", "messages")
    role, content = options.text("role", "role"), options.text("content", "content")
    roles = {name: name for name in ROLES} | options.mapping("roles")
    options.end()
    unknown = sorted(set(roles.values()) - set(ROLES))
    if unknown:
        raise options.wrong("roles", f"{unknown[0]!r} is not one of {', '.join(ROLES)}")
    form = TurnForm(role, content, roles)
    return _each(
        folder, files, (column,), lambda row: Conversation(row.key, messages(row, column, form))
    )


def _exchange(question: str, answer: str) -> Callable[[Row], Conversation]:
    def document(row: Row) -> Conversation:
        turns = (Message("user", row.text(question)), Message("assistant", row.text(answer)))
        return Conversation(row.key, turns)

    return document


def _each(
    folder: Path, files: tuple[str, ...], columns: tuple[str, ...], document: Callable[[Row], D]
) -> Iterator[D]:
    for row in read_rows(folder, files, columns):
        yield document(row)
