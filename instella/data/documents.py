"""What an adapter yields: small, frozen, plain values. One type for each use.

``key`` names the document inside its source for ever: it never depends on the order of
files, on other documents or on the machine.

``Dropped`` stands in the place of a document that a published filter leaves out.
"""

from dataclasses import dataclass

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Message:
    """One turn of a conversation; ``role`` is one of ``ROLES``."""

    role: str
    content: str


@dataclass(frozen=True)
class Text:
    """Plain text for pretraining."""

    key: str
    text: str


@dataclass(frozen=True)
class Conversation:
    """Turns for supervised fine-tuning; the loss is on the assistant's."""

    key: str
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Preference:
    """A question with a better and a worse answer; ``history`` is the turns before it."""

    key: str
    question: str
    chosen: str
    rejected: str
    history: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Problem:
    """A question whose answer can be checked."""

    key: str
    question: str
    answer: str


@dataclass(frozen=True)
class Choice:
    """A multiple-choice item; ``gold`` is an index into ``choices``."""

    key: str
    question: str
    choices: tuple[str, ...]
    gold: int


@dataclass(frozen=True)
class Dropped:
    """A row without a document, for ``reason`` (a name for a count: ``not_english``)."""

    key: str
    reason: str


Document = Text | Conversation | Preference | Problem | Choice
