"""Which documents of a part are used: a share by keyed hash, a limit, repetitions."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from instella.data.documents import Document, Dropped
from instella.recipe.settings import Part


@dataclass
class Selection:
    """What became of the documents of one part.

    Attributes:
        read: documents that the adapter yielded.
        selected: those kept by ``fraction`` and ``max_documents``.
        drawn: documents after repetition.
        filtered: rows that a published filter left out, by reason; not among ``read``.
    """

    read: int = 0
    selected: int = 0
    drawn: int = 0
    filtered: dict[str, int] = field(default_factory=dict)


def select(
    documents: Iterable[Document | Dropped], part: Part, counts: Selection | None = None
) -> Iterator[Document]:
    """The selected documents in their order, each ``part.repeat`` times in a row.

    Nothing is kept in memory, and no more is read than is wanted.

    Args:
        documents: what the part's adapter yields.
        part: ``fraction`` keeps a document by a hash of source and key, so the decision
            depends neither on order nor on other documents, and a larger fraction keeps
            everything that a smaller one keeps; ``max_documents`` then keeps the first so
            many; repetition n of a document has a key that ends with ``#n``.
        counts: grows with what is read and kept.
    """
    counts = Selection() if counts is None else counts
    for document in documents:
        if isinstance(document, Dropped):
            counts.filtered[document.reason] = counts.filtered.get(document.reason, 0) + 1
            continue
        counts.read += 1
        if not is_kept(document, part):
            continue
        counts.selected += 1
        counts.drawn += part.repeat
        yield document
        for number in range(2, part.repeat + 1):
            yield replace(document, key=f"{document.key}#{number}")
        if counts.selected == part.max_documents:
            return


def is_kept(document: Document, part: Part) -> bool:
    """Whether the share of ``part.fraction`` holds the document."""
    if part.fraction >= 1.0:
        return True
    return keyed_share(f"{part.source}\0{document.key}") < part.fraction


def keyed_share(key: str) -> float:
    """A number in [0, 1) from the first 53 bits of the key's SHA-256."""
    digest = hashlib.sha256(key.encode("utf-8")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) * 2.0**-53
