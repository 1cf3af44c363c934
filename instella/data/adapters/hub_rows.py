"""The adapters of ``hub_sets``: rows of published data sets become documents.

Every row must be what the table says; the first that is not ends the reading with one
error that names file, row and column. A key is made of the row's content (``keys``), so
neither the names of files nor the order of rows matters. What a published filter leaves
out, and preference pairs that are none, are yielded as ``Dropped``:

``not_english``, ``no_language``  the English filter (``english``)
``empty_after_cut``               nothing stands before the cut
``prompts_differ``                chosen and rejected do not answer one and the same turns
``no_user_turn``                  the turn before the answers is not a user's
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from instella.data.adapters.english import verdict
from instella.data.adapters.hub_sets import HUB_SETS, HubSet
from instella.data.adapters.keys import content_key
from instella.data.adapters.options import Options
from instella.data.adapters.rows import Row, read_rows
from instella.data.adapters.turns import messages
from instella.data.documents import (
    Conversation,
    Document,
    Dropped,
    Message,
    Preference,
    Problem,
    Text,
)
from instella.errors import VerificationError
from instella.recipe.settings import Part


def read(name: str, part: Part, folder: Path) -> Iterator[Document | Dropped]:
    """Documents of the data set ``name`` of the table, in the order of files and rows."""
    options = Options(part)
    files = options.texts("files", ("*",))
    options.end()
    return _documents(HUB_SETS[name], folder, files)


def _documents(
    hub_set: HubSet, folder: Path, files: tuple[str, ...]
) -> Iterator[Document | Dropped]:
    build = _FORMS[hub_set.form]
    columns = hub_set.columns + ((hub_set.identity,) if hub_set.identity else ())
    hint = hub_set.hint or f"{' and '.join(hub_set.repositories)} should have {', '.join(columns)}"
    for row in read_rows(folder, files, columns):
        try:
            item = build(hub_set, row)
        except VerificationError as error:
            raise VerificationError(f"{error}; {hint}") from None
        yield item


def _text(hub_set: HubSet, row: Row) -> Text:
    text = row.text(hub_set.columns[0])
    return Text(content_key(text, identity=_identity(hub_set, row)), text)


def _chat(hub_set: HubSet, row: Row) -> Conversation | Dropped:
    turns = messages(row, hub_set.columns[0], hub_set.turns)
    key = content_key(_plain(turns), identity=_identity(hub_set, row))
    reason = verdict(turns[0].content) if hub_set.english_only else None
    return Conversation(key, turns) if reason is None else Dropped(key, reason)


def _exchange(hub_set: HubSet, row: Row) -> Conversation | Dropped:
    question, answer = (row.text(column) for column in hub_set.columns)
    key = content_key(question, answer, identity=_identity(hub_set, row))
    if hub_set.cut_before is not None:
        answer = answer.partition(hub_set.cut_before)[0]
        if not answer.strip():
            return Dropped(key, "empty_after_cut")
    return Conversation(key, (Message("user", question), Message("assistant", answer)))


def _problem(hub_set: HubSet, row: Row) -> Problem:
    question, answer = (row.text(column) for column in hub_set.columns)
    return Problem(
        content_key(question, answer, identity=_identity(hub_set, row)), question, answer
    )


def _preference(hub_set: HubSet, row: Row) -> Preference | Dropped:
    chosen, rejected = (messages(row, column, hub_set.turns) for column in hub_set.columns)
    for column, turns in zip(hub_set.columns, (chosen, rejected), strict=True):
        if turns[-1].role != "assistant":
            raise VerificationError(
                f"{row.key}: column {column}: the last turn is the {turns[-1].role}'s, "
                "need the assistant's"
            )
    key = content_key(_plain(chosen), _plain(rejected), identity=_identity(hub_set, row))
    before = chosen[:-1]
    if before != rejected[:-1]:
        return Dropped(key, "prompts_differ")
    if not before or before[-1].role != "user":
        return Dropped(key, "no_user_turn")
    question, history = before[-1].content, before[:-1]
    return Preference(key, question, chosen[-1].content, rejected[-1].content, history)


def _plain(turns: tuple[Message, ...]) -> list[list[str]]:
    return [[message.role, message.content] for message in turns]


def _identity(hub_set: HubSet, row: Row) -> str | None:
    if hub_set.identity is None:
        return None
    value = row.value(hub_set.identity)
    if type(value) is int:
        return str(value)
    if value == "":
        raise VerificationError(f"{row.key}: column {hub_set.identity} is empty")
    return row.text(hub_set.identity)


_FORMS: dict[str, Callable[[HubSet, Row], Document | Dropped]] = {
    "text": _text,
    "chat": _chat,
    "exchange": _exchange,
    "preference": _preference,
    "problem": _problem,
}
