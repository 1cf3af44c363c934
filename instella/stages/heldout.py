"""Stage kind ``heldout``: the items that are measured and never trained on."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from instella.artifacts.job import Job
from instella.canonical import write_json, write_jsonl
from instella.data.adapters import read
from instella.data.documents import Choice, Conversation, Document, Preference, Problem, Text
from instella.data.select import select
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import HeldOutSet

TYPES: dict[str, type] = {
    "text": Text,
    "choice": Choice,
    "answer": Conversation,
    "preference": Preference,
    "problem": Problem,
}


def run(job: Job) -> None:
    """Write ``NAME.jsonl`` for each set, and ``sets.json`` with what was read and kept.

    Settings: ``sets`` (name to HeldOutSet) and ``seed``. ``max_items`` takes the items
    with the smallest hash of seed, set and key, and leaves them in the source's order; the
    choices of an item are put in the order of such hashes, so that no position is favoured.

    Raises:
        BadUse: an adapter that yields another type of document than the kind needs.
        VerificationError: an empty set, or two items with one key.
    """
    seed: int = job.settings["seed"]
    about = {}
    for name, item_set in job.settings["sets"].items():
        job.report.say(f"reading {name}")
        salt = f"{seed}\0{name}"
        folder = job.inputs[f"source_{item_set.part.source}"]
        documents = list(_documents(name, item_set, folder))
        kept = choose(documents, item_set.max_items, salt)
        count = write_jsonl(job.output / f"{name}.jsonl", (_row(item, salt) for item in kept))
        about[name] = {
            "kind": item_set.kind,
            "source": item_set.part.source,
            "items": count,
            "left_out": len(documents) - count,
        }
    write_json(job.output / "sets.json", about)


def _documents(name: str, item_set: HeldOutSet, folder: Path) -> Iterator[Document]:
    needed = TYPES[item_set.kind]
    keys: set[str] = set()
    for document in select(read(item_set.part, folder), item_set.part):
        if not isinstance(document, needed):
            raise BadUse(
                f"held-out set {name}: adapter {item_set.part.adapter} yields "
                f"{type(document).__name__}, kind {item_set.kind} needs {needed.__name__}; "
                "change the adapter's form or the kind"
            )
        if isinstance(document, Conversation):
            _check_exchange(document, name)
        if isinstance(document, Preference) and document.history:
            raise BadUse(
                f"held-out set {name}, {document.key}: has turns before its question; "
                "kind preference needs none"
            )
        if document.key in keys:
            raise VerificationError(f"held-out set {name}: two items have the key {document.key}")
        keys.add(document.key)
        yield document
    if not keys:
        raise VerificationError(f"held-out set {name}: no item; correct its part in the recipe")


def _check_exchange(document: Conversation, name: str) -> None:
    roles = [message.role for message in document.messages]
    if roles != ["user", "assistant"]:
        raise BadUse(
            f"held-out set {name}, {document.key}: turns are {', '.join(roles)}; "
            "kind answer needs one question and one answer"
        )


def choose(documents: list[Document], limit: int | None, salt: str) -> list[Document]:
    """At most ``limit`` documents, by the smallest keyed hash, in their old order."""
    if limit is None or len(documents) <= limit:
        return documents
    ranked = sorted(documents, key=lambda document: _rank(salt, document.key))
    kept = {document.key for document in ranked[:limit]}
    return [document for document in documents if document.key in kept]


def shuffled(item: Choice, salt: str) -> Choice:
    """The item with its choices in the order of keyed hashes, ``gold`` following."""
    indices = range(len(item.choices))
    order = sorted(indices, key=lambda index: _rank(salt, item.key, str(index)))
    return replace(
        item,
        choices=tuple(item.choices[index] for index in order),
        gold=order.index(item.gold),
    )


def _rank(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode("utf-8")).digest()


def _row(document: Document, salt: str) -> dict[str, Any]:
    match document:
        case Text():
            return {"key": document.key, "text": document.text}
        case Choice():
            item = shuffled(document, salt)
            return {
                "key": item.key,
                "question": item.question,
                "choices": item.choices,
                "gold": item.gold,
            }
        case Conversation():
            question, answer = (message.content for message in document.messages)
            return {"key": document.key, "question": question, "answer": answer}
        case Preference():
            return {
                "key": document.key,
                "question": document.question,
                "chosen": document.chosen,
                "rejected": document.rejected,
            }
        case Problem():
            return {
                "key": document.key,
                "question": document.question,
                "answer": document.answer,
            }
