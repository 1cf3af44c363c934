"""Which documents of a part are used: a share by keyed hash, a limit, repetitions."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from instella.data.documents import Document
from instella.recipe.settings import Part


def select(documents: Iterable[Document], part: Part) -> Iterator[Document]:
    """The selected documents in their order, the whole pass ``part.repeat`` times.

    Args:
        documents: what the part's adapter yields.
        part: ``fraction`` keeps a document by a hash of source and key, so the decision
            depends neither on order nor on other documents, and a larger fraction keeps
            everything that a smaller one keeps; ``max_documents`` then keeps the first so
            many; pass n of ``repeat`` has keys that end with ``#n``.
    """
    kept = islice((d for d in documents if is_kept(d, part)), part.max_documents)
    if part.repeat == 1:
        yield from kept
        return
    first = []
    for document in kept:
        first.append(document)
        yield document
    for number in range(2, part.repeat + 1):
        for document in first:
            yield replace(document, key=f"{document.key}#{number}")


def is_kept(document: Document, part: Part) -> bool:
    """Whether the share of ``part.fraction`` holds the document."""
    if part.fraction >= 1.0:
        return True
    return keyed_share(f"{part.source}\0{document.key}") < part.fraction


def keyed_share(key: str) -> float:
    """A number in [0, 1) from the first 53 bits of the key's SHA-256."""
    digest = hashlib.sha256(key.encode("utf-8")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) * 2.0**-53
