"""Held-out items that training documents hold: exactly, or nearly word for word.

Exact is the rule by which the tokens stages drop documents (``data.contamination``), so on
what they kept it finds nothing unless a rule or a ledger is wrong. Near finds what it misses:
an item is nearly in a document when at least ``NEAR_SHARE`` of the runs of ``NEAR_WORDS``
words of its question (or text) stand in the document, in any order. Nothing is sampled or
hashed, so counts are exact; an item with fewer words is compared by the exact rule alone.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from instella.canonical import read_jsonl
from instella.data.adapters import texts
from instella.data.contamination import WORD, Guard
from instella.data.documents import Document
from instella.data.rolling import plain
from instella.errors import VerificationError

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
        self._sizes: list[int] = []
        self._holders: dict[tuple[str, ...], list[int]] = {}
        for path in sorted(folder.glob("*.jsonl")):
            for row in read_jsonl(path):
                self._add(path.stem, row.get("key"), row.get("text", row.get("question")))
        self._guard = Guard.from_folder(folder, ngram)

    def _add(self, held_out: str, key: object, text: object) -> None:
        if not isinstance(key, str) or not isinstance(text, str):
            raise VerificationError(f"held-out set {held_out}, {key}: has no key, question or text")
        self.items[held_out] += 1
        runs = set(_runs(text))
        if not runs:
            self.short[held_out] += 1
            return
        number = len(self._names)
        self._names.append(f"{held_out}/{key}")
        self._sizes.append(len(runs))
        for run in runs:
            self._holders.setdefault(run, []).append(number)

    def found_in(self, document: Document) -> Found:
        """The items that one document holds; of several exact ones the first is named."""
        exact = self._guard.holds(document)
        shared: Counter[int] = Counter()
        # One text at a time would miss an item that runs over two turns.
        for run in set(_runs(" ".join(texts(document)))):
            shared.update(self._holders.get(run, ()))
        near = {
            self._names[number]
            for number, count in shared.items()
            if count >= NEAR_SHARE * self._sizes[number]
        }
        return Found(frozenset({exact} if exact else ()), frozenset(near))


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = WORD.findall(plain(text))
    for start in range(len(words) - NEAR_WORDS + 1):
        yield tuple(words[start : start + NEAR_WORDS])


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
