"""Keeps held-out items out of training data.

A document is contaminated when it shares an exact n-gram of words (13 in a recipe) with an
item. Words are runs of letters and digits after NFKC and lower-casing. An item is compared
by its question and gold answer, or its text; prompts and suffixes are added later and do
not count. An item with fewer than n words has no n-gram: there the whole question (or
text) must equal the document's, where blanks and case do not count but signs do, since
``3+4-5`` and ``3-4+5`` have the same words.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from instella.canonical import parse_json
from instella.data.documents import Choice, Conversation, Document, Preference, Problem, Text
from instella.data.rolling import Fingerprints, fingerprints, plain
from instella.errors import VerificationError

WORD = re.compile(r"[^\W_]+")
MAX_KNOWN_WORDS = 1 << 20


class Guard:
    """Answers whether a document holds a held-out item.

    The n-grams are kept as sorted 64-bit hashes, 12 bytes each. Two different n-grams
    share a hash with a probability of about 2**-64. Hashes are only made of texts in which
    a fingerprint (``data.rolling``) says that there may be something to find.
    """

    def __init__(self, items: Iterable[tuple[str, str, str]], ngram: int) -> None:
        """
        Args:
            items: name, question (or text), and gold answer (or nothing) of each.
            ngram: words of an n-gram.
        """
        self._ngram = ngram
        self._words: dict[str, int] = {}
        seeds = [_hash(f"position {position}") | 1 for position in range(ngram)]
        self._factors = np.array(seeds, dtype=np.uint64)
        self._names: list[str] = []
        self._whole: dict[bytes, int] = {}
        self._longest_whole = 0
        hashes, owners, prints = [], [], []
        for number, (name, question, answer) in enumerate(items):
            self._names.append(name)
            text = plain(f"{question} {answer}")
            found = self._hashes(text)
            if len(found) == 0:
                whole = _unspaced(plain(question))
                self._longest_whole = max(self._longest_whole, len(whole))
                self._whole.setdefault(_digest(whole), number)
            prints.append(fingerprints(text, ngram)[0])
            hashes.append(found)
            owners.append(np.full(len(found), number, dtype=np.uint32))
        keys = np.concatenate([np.zeros(0, dtype=np.uint64), *hashes])
        values = np.concatenate([np.zeros(0, dtype=np.uint32), *owners])
        # The stable order gives a shared n-gram to the item that comes first.
        self._grams, first = np.unique(keys, return_index=True)
        self._owners = values[first]
        self._prints = Fingerprints(np.concatenate([np.zeros(0, dtype=np.uint64), *prints]))

    @classmethod
    def from_folder(cls, heldout_folder: Path, ngram: int) -> "Guard":
        """The guard over every set (``NAME.jsonl``) of a held-out artifact.

        Raises:
            VerificationError: a row that is no held-out item.
        """
        items = []
        for path in sorted(heldout_folder.glob("*.jsonl")):
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    row = parse_json(line, f"{path} row {number}")
                    items.append(_item(row, path.stem, f"{path} row {number}"))
        return cls(items, ngram)

    def holds(self, document: Document) -> str | None:
        """``SET/KEY`` of a held-out item that the document holds, or None."""
        if not self._names:
            return None
        wholes, runs = _compared(document)
        looks = {text: _Look(text, self._ngram) for text in dict.fromkeys((*wholes, *runs))}
        for text in wholes:
            owner = self._owner_of_whole(looks[text])
            if owner is not None:
                return self._names[owner]
        for text in runs:
            owner = self._owner_of_gram(looks[text])
            if owner is not None:
                return self._names[owner]
        return None

    def _owner_of_whole(self, look: "_Look") -> int | None:
        # Letters and digits are never blanks, so a text with too many of them is too long.
        if look.letters > self._longest_whole:
            return None
        return self._whole.get(_digest(_unspaced(look.text)))

    def _owner_of_gram(self, look: "_Look") -> int | None:
        if not self._prints.holds_any(look.prints):
            return None
        found = self._hashes(look.text)
        places = np.searchsorted(self._grams, found)
        places[places == len(self._grams)] = 0
        hits = places[self._grams[places] == found]
        return int(self._owners[hits[0]]) if len(hits) else None

    def _hashes(self, text: str) -> np.ndarray:
        """uint64 hash of each n-gram of a plain text: a sum of word hashes times odd factors."""
        words = WORD.findall(text)
        count = len(words) - self._ngram + 1
        if count < 1:
            return np.zeros(0, dtype=np.uint64)
        if len(self._words) > MAX_KNOWN_WORDS:
            self._words.clear()
        known = self._words
        for word in words:
            if word not in known:
                known[word] = _hash(word)
        values = np.array([known[word] for word in words], dtype=np.uint64)
        hashes = np.zeros(count, dtype=np.uint64)
        for position, factor in enumerate(self._factors):
            hashes += values[position : position + count] * factor
        return hashes


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "little")


class _Look:
    """A text as it is compared, with the fingerprints of its n-grams."""

    def __init__(self, text: str, ngram: int) -> None:
        self.text = plain(text)
        self.prints, self.letters = fingerprints(self.text, ngram)


def _unspaced(text: str) -> str:
    return "".join(text.split())


def _digest(text: str) -> bytes:
    """16 bytes that stand for a whole text."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()


def _compared(document: Document) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Texts compared as a whole, and texts compared by n-grams."""
    match document:
        case Text():
            return (document.text,), (document.text,)
        case Conversation():
            asked = tuple(m.content for m in document.messages if m.role == "user")
            return asked, (" ".join(message.content for message in document.messages),)
        case Preference():
            asked = tuple(m.content for m in document.history if m.role == "user")
            before = "".join(f"{message.content} " for message in document.history)
            answers = (document.chosen, document.rejected)
            runs = tuple(f"{before}{document.question} {answer}" for answer in answers)
            return (*asked, document.question), runs
        case Problem():
            return (document.question,), (f"{document.question} {document.answer}",)
        case Choice():
            runs = tuple(f"{document.question} {choice}" for choice in document.choices)
            return (document.question,), runs


def _item(row: Any, set_name: str, where: str) -> tuple[str, str, str]:
    if not isinstance(row, Mapping):
        raise VerificationError(f"{where}: no held-out item")
    try:
        name = f"{set_name}/{row['key']}"
        if "text" in row:
            return name, row["text"], ""
        if "choices" in row:
            return name, row["question"], row["choices"][row["gold"]]
        return name, row["question"], row["chosen"] if "chosen" in row else row["answer"]
    except (KeyError, IndexError, TypeError):
        raise VerificationError(f"{where}: not the fields of a held-out item") from None
