"""Adapters: the rows of a source become documents.

Each adapter is a function ``read(part, folder)`` in a small module. It checks its options
when called, before it touches the folder, and then yields documents in an order that
depends on the source's bytes alone, one at a time. In the place of a document that a
published filter leaves out it yields ``Dropped``.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from instella.data.adapters import (
    gsm8k,
    hub_rows,
    mmlu,
    olmes,
    plain_text,
    python_code,
    row_documents,
    worked_sums,
)  # fmt: skip
from instella.data.adapters.hub_sets import HUB_SETS
from instella.data.documents import (
    Choice,
    Conversation,
    Document,
    Dropped,
    Preference,
    Problem,
    Text,
)
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Part

ADAPTERS: dict[str, Callable[[Part, Path], Iterator[Document | Dropped]]] = {
    "chat_rows": row_documents.read_chat,
    "choice_rows": row_documents.read_choice,
    "gsm8k_bpb": gsm8k.read,
    "mmlu_auxiliary": mmlu.read,
    "olmes_requests": olmes.read,
    "plain_text": plain_text.read,
    "preference_rows": row_documents.read_preference,
    "problem_rows": row_documents.read_problem,
    "python_code": python_code.read,
    "text_rows": row_documents.read_text,
    "worked_sums": worked_sums.read,
    **{name: partial(hub_rows.read, name) for name in HUB_SETS},
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
    return (item for item in read_all(part, folder) if not isinstance(item, Dropped))


def read_all(part: Part, folder: Path) -> Iterator[Document | Dropped]:
    """As ``read``, with what a published filter leaves out, for those who count it."""
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
            earlier = (message.content for message in document.history)
            return (*earlier, document.question, document.chosen, document.rejected)
        case Problem():
            return (document.question, document.answer)
        case Choice():
            return (document.question, *document.choices)


def _encodable(items: Iterator[Document | Dropped], part: Part) -> Iterator[Document | Dropped]:
    for item in items:
        for text in () if isinstance(item, Dropped) else texts(item):
            try:
                text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise VerificationError(
                    f"source {part.source}, {item.key}: character {error.start} is half a "
                    "surrogate pair, not Unicode; correct the data"
                ) from None
        yield item
