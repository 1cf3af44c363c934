"""Texts of which a share of the runs of words stands in a document, in any order.

The index holds the items only: the fingerprint (``data.rolling``) of every run, sorted, with
the items that it stands in. A document passes by once, as arithmetic on arrays, so a corpus
costs time in proportion to its length and no memory. Equal runs have equal fingerprints, so
no item is missed; that other runs may have the same one is why what the fingerprints find is
compared word by word before it counts, once for each item.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from instella.data.contamination import WORD
from instella.data.rolling import fingerprints, plain

Run = tuple[str, ...]


def runs(text: str, words: int) -> Iterator[Run]:
    """The runs of ``words`` words of a text, as words are compared."""
    found = WORD.findall(plain(text))
    for start in range(len(found) - words + 1):
        yield tuple(found[start : start + words])


class NearIndex:
    """Finds the items that a document nearly holds.

    Args:
        items: texts; one without a run is never found.
        words: of a run.
        share: of an item's different runs that have to stand in the document, above 0.
    """

    def __init__(self, items: Sequence[str], words: int, share: float) -> None:
        self._items, self._words = list(items), words
        self._sizes = np.array([len(set(runs(item, words))) for item in items], dtype=np.int64)
        self._needed = share * self._sizes
        prints = [np.unique(fingerprints(plain(item), words)[0]) for item in items]
        values = np.concatenate([np.zeros(0, dtype=np.uint64), *prints])
        owners = np.repeat(np.arange(len(items)), [len(found) for found in prints])
        order = np.argsort(values, kind="stable")
        self._owners = owners[order]
        self._prints, self._starts, self._counts = np.unique(
            values[order], return_index=True, return_counts=True
        )
        # A table of bits by the high bits answers for nearly every run of a document.
        bits = min(26, max(10, (32 * len(self._prints)).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(1 << bits, dtype=np.bool_)
        self._table[self._prints >> self._shift] = True

    @property
    def sizes(self) -> np.ndarray:
        """Different runs of each item, int64 [items]."""
        return self._sizes

    def found_in(self, text: str, known: set[int]) -> set[int]:
        """Numbers of the items that a text nearly holds, without those that are known."""
        candidates = self._candidates(text) - known
        if not candidates:
            return set()
        held = set(runs(text, self._words))
        return {
            number
            for number in candidates
            if len(held & set(runs(self._items[number], self._words))) >= self._needed[number]
        }

    def _candidates(self, text: str) -> set[int]:
        prints, _ = fingerprints(plain(text), self._words)
        likely = np.unique(prints[self._table[prints >> self._shift]])
        if not len(likely):
            return set()
        places = np.searchsorted(self._prints, likely)
        places[places == len(self._prints)] = 0
        places = places[self._prints[places] == likely]
        counts = self._counts[places]
        # All places of the owners of all runs: each run's start, and so many behind it.
        behind = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        owners = self._owners[np.repeat(self._starts[places], counts) + behind]
        numbers, shared = np.unique(owners, return_counts=True)
        found: list[int] = numbers[shared >= self._needed[numbers]].tolist()
        return set(found)
