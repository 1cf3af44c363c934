"""Held-out items that training documents hold: exactly, or nearly word for word.

Exact is the rule by which the tokens stages drop documents (``data.contamination``), so on
what they kept it finds nothing unless a rule or a ledger is wrong. Near finds what it misses:
an item is nearly in a document when at least ``NEAR_SHARE`` of the runs of ``NEAR_WORDS``
words of its question (or text) stand in the document, in any order (``evaluation.near``).
Nothing is sampled, so counts are exact; an item with fewer words is compared by the exact
rule alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.canonical import read_jsonl
from instella.data.adapters import texts
from instella.data.contamination import Guard
from instella.data.documents import Document
from instella.errors import VerificationError
from instella.evaluation.near import NearIndex

NEAR_WORDS = 5
# A word changed in every twelve leaves no run of thirteen, and eight in thirteen runs of five.
NEAR_SHARE = 0.5


@dataclass(frozen=True)
class Found:
    """Names (``SET/KEY``) of the items that some documents hold."""

    exact: frozenset[str]
    near: frozenset[str]

    def __or__(self, other: "Found") -> "Found":
        return Found(self.exact | other.exact, self.near | other.near)


class HeldOut:
    """The items of a held-out artifact."""

    def __init__(self, folder: Path, ngram: int) -> None:
        """
        Args:
            folder: of the artifact, ``NAME.jsonl`` for each set.
            ngram: words of the exact rule.

        Raises:
            VerificationError: a row that is no held-out item.
        """
        self.items: Counter[str] = Counter()
        self.short: Counter[str] = Counter()
        self._names: list[str] = []
        items = []
        for path in sorted(folder.glob("*.jsonl")):
            for row in read_jsonl(path):
                items.append(self._text(path.stem, row))
        self._near = NearIndex(items, NEAR_WORDS, NEAR_SHARE)
        for name, runs in zip(self._names, self._near.sizes.tolist(), strict=True):
            held_out = name.partition("/")[0]
            self.items[held_out] += 1
            self.short[held_out] += runs == 0
        self._guard = Guard.from_folder(folder, ngram)

    def _text(self, held_out: str, row: Mapping[str, Any]) -> str:
        key, text = row.get("key"), row.get("text", row.get("question"))
        if not isinstance(key, str) or not isinstance(text, str):
            raise VerificationError(f"held-out set {held_out}, {key}: has no key, question or text")
        self._names.append(f"{held_out}/{key}")
        return text

    def found_in(self, documents: Iterable[Document]) -> Found:
        """The items that any of the documents holds.

        Each document is read once and let go. Of several items that one document holds
        exactly, only the first is named.
        """
        exact: set[str] = set()
        near: set[int] = set()
        for document in documents:
            name = self._guard.holds(document)
            if name is not None:
                exact.add(name)
            # One text at a time would miss an item that runs over two turns.
            near |= self._near.found_in(" ".join(texts(document)), near)
        return Found(frozenset(exact), frozenset(self._names[number] for number in near))


def counts(held_out: HeldOut, found: Found) -> dict[str, dict[str, int]]:
    """For each set its items, how many are found either way, and how many are too short."""
    exact = Counter(name.partition("/")[0] for name in found.exact)
    near = Counter(name.partition("/")[0] for name in found.near)
    return {
        name: {
            "items": items,
            "exact": exact[name],
            "near": near[name],
            "short": held_out.short[name],
        }
        for name, items in sorted(held_out.items.items())
    }
