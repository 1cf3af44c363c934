"""Adapters: the rows of a source become documents.

Each adapter is a function ``read(part, folder)`` in a small module. It checks its options
when called, before it touches the folder, and then yields documents in an order that
depends on the source's bytes alone.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from instella.data.adapters import (
    gsm8k,
    olmes,
    plain_text,
    python_code,
    row_documents,
    worked_sums,
)  # fmt: skip
from instella.data.documents import Choice, Conversation, Document, Preference, Problem, Text
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Part

ADAPTERS: dict[str, Callable[[Part, Path], Iterator[Document]]] = {
    "chat_rows": row_documents.read_chat,
    "choice_rows": row_documents.read_choice,
    "gsm8k_bpb": gsm8k.read,
    "olmes_requests": olmes.read,
    "plain_text": plain_text.read,
    "preference_rows": row_documents.read_preference,
    "problem_rows": row_documents.read_problem,
    "python_code": python_code.read,
    "text_rows": row_documents.read_text,
    "worked_sums": worked_sums.read,
}


def read(part: Part, folder: Path) -> Iterator[Document]:
    """Documents of a part of a mixture, before any selection (``data.select``).

    Args:
        part: names the adapter and its options.
        folder: files of the source's artifact.

    Raises:
        BadUse: unknown adapter or option; raised by the call itself.
        VerificationError: damaged or malformed data, with file, row and column.
    """
    if part.adapter not in ADAPTERS:
        names = ", ".join(sorted(ADAPTERS))
        raise BadUse(f"source {part.source}: adapter {part.adapter!r} is not one of {names}")
    return _encodable(ADAPTERS[part.adapter](part, folder), part)


def texts(document: Document) -> tuple[str, ...]:
    """Every text of a document: what is written, tokenized or compared."""
    match document:
        case Text():
            return (document.text,)
        case Conversation():
            return tuple(message.content for message in document.messages)
        case Preference():
            return (document.question, document.chosen, document.rejected)
        case Problem():
            return (document.question, document.answer)
        case Choice():
            return (document.question, *document.choices)


def _encodable(documents: Iterator[Document], part: Part) -> Iterator[Document]:
    for document in documents:
        for text in texts(document):
            try:
                text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise VerificationError(
                    f"source {part.source}, {document.key}: character {error.start} is half a "
                    "surrogate pair, not Unicode; correct the data"
                ) from None
        yield document
