"""What an adapter yields: small, frozen, plain values. One type for each use.

``key`` names the document inside its source for ever: it never depends on the order of
files, on other documents or on the machine.
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
    """A question with a better and a worse answer."""

    key: str
    question: str
    chosen: str
    rejected: str


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


Document = Text | Conversation | Preference | Problem | Choice
