"""Turn lists: a column that holds a conversation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from instella.data.adapters.rows import Row, text_of
from instella.data.documents import ROLES, Message
from instella.errors import VerificationError


@dataclass(frozen=True)
class TurnForm:
    """The fields of a turn, and the role that each name stands for."""

    role: str = "role"
    content: str = "content"
    roles: Mapping[str, str] = field(default_factory=lambda: {name: name for name in ROLES})


def messages(row: Row, column: str, form: TurnForm) -> tuple[Message, ...]:
    """The turns of a column, at least one.

    Raises:
        VerificationError: with the row, and the turn as ``column[NUMBER]`` from 0.
    """
    turns = row.value(column)
    if not isinstance(turns, list) or not turns:
        raise VerificationError(f"{row.key}: column {column} is not a list of turns")
    return tuple(_message(row, f"{column}[{n}]", turn, form) for n, turn in enumerate(turns))


def _message(row: Row, place: str, turn: Any, form: TurnForm) -> Message:
    if not isinstance(turn, dict):
        kind = type(turn).__name__
        raise VerificationError(f"{row.key}: column {place} is {kind}, need a turn")
    role = text_of(turn.get(form.role), row.key, f"{place}.{form.role}")
    if role not in form.roles:
        known = ", ".join(form.roles)
        raise VerificationError(
            f"{row.key}: column {place}.{form.role}: role {role!r} is unknown, not one of {known}"
        )
    content = text_of(turn.get(form.content), row.key, f"{place}.{form.content}")
    return Message(form.roles[role], content)
