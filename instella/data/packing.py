"""The documents of a part as the tokens stages and the tokenizer read them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from instella.data.adapters import read_all
from instella.data.documents import Choice, Conversation, Document, Preference, Problem, Text
from instella.data.select import Selection, select
from instella.errors import BadUse
from instella.recipe.settings import Part

MATH_PROMPT = "math_prompt"
"""Option of a part that the tokens stages read themselves: its questions are math
problems, so the prompt suffix goes after each user turn."""

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Drawn:
    """A document with the part (its number and source) that it comes from."""

    part: int
    source: str
    document: Document
    math_prompt: bool

    def of_kind(self, kind: type[Kind]) -> Kind:
        """The document, which must be a ``kind``.

        Raises:
            BadUse: the part's adapter yields something else.
        """
        if not isinstance(self.document, kind):
            raise BadUse(
                f"source {self.source}: its adapter yields {type(self.document).__name__}, this "
                f"stage needs {kind.__name__}; choose another adapter for part {self.part}"
            )
        return self.document


def split_options(part: Part, math_prompt: bool = False) -> tuple[Part, bool]:
    """The part as its adapter may see it, and whether its questions get the suffix.

    Args:
        part: its option ``math_prompt`` is taken out.
        math_prompt: what holds when the option is absent.

    Raises:
        BadUse: the option is neither true nor false.
    """
    options = dict(part.options or {})
    if MATH_PROMPT not in options:
        return part, math_prompt
    chosen = options.pop(MATH_PROMPT)
    if not isinstance(chosen, bool):
        raise BadUse(f"source {part.source}: {MATH_PROMPT} is {chosen!r}; write true or false")
    return replace(part, options=options), chosen


def documents_of(
    part: Part, inputs: Mapping[str, Path], counts: Selection | None = None
) -> Iterator[Document]:
    """Selected documents of one part, ``math_prompt`` already taken out of its options.

    Args:
        part: source, adapter and selection.
        inputs: role ``source_NAME`` to the folder of that source.
        counts: grows with what is read and kept.
    """
    return select(read_all(part, inputs[f"source_{part.source}"]), part, counts)


def plain_text(document: Document) -> str:
    """A document as text to predict, without role tags.

    ``Text`` as it is; otherwise stripped contents joined by newlines (recipe/FACTS D): a
    conversation's turns, or the question with its answer, better answer or right choice.
    """
    match document:
        case Text(text=text):
            return text
        case Conversation(messages=messages):
            pieces = [message.content for message in messages]
        case Problem(question=question, answer=answer):
            pieces = [question, answer]
        case Preference(question=question, chosen=chosen, history=history):
            pieces = [*(message.content for message in history), question, chosen]
        case Choice(question=question, choices=choices, gold=gold):
            pieces = [question, choices[gold]]
    return "\n".join(piece.strip() for piece in pieces)
