"""What became of every document: the ledger of what is in, the counts of what is not.

Nothing is left out silently: each document that was reached is either an entry of the
ledger or counted under the held-out set or the reason for which it was dropped.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from instella.canonical import sha256_bytes
from instella.data.select import Selection
from instella.data.tokenizer import utf8
from instella.data.units import Outcome
from instella.errors import VerificationError
from instella.recipe.settings import Part


def entry(source: str, key: str, text: str, **place: int) -> dict[str, Any]:
    """One line of ``documents.jsonl``.

    Args:
        source: name of the source.
        key: of the document, inside its source.
        text: what was encoded, before NFC and before any cut; its UTF-8 is hashed.
        place: where it lies: ``start`` and ``end`` in a stream, ``row`` in a table.
    """
    return {"source": source, "key": key, "sha256": sha256_bytes(utf8(text)), **place}


def clip(entries: Iterable[Mapping[str, Any]], tokens: int) -> Iterator[dict[str, Any]]:
    """The entries of a stream that keeps its first ``tokens`` tokens."""
    for item in entries:
        if item["start"] < tokens:
            yield {**item, "end": min(item["end"], tokens)}


class Ledger:
    """Counts for each part of a mixture, for ``report.json``."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._sums: list[Counter[str]] = [Counter() for _ in parts]
        self._contaminated: list[Counter[str]] = [Counter() for _ in parts]
        self._dropped: list[Counter[str]] = [Counter() for _ in parts]
        self._noted: list[Counter[str]] = [Counter() for _ in parts]

    def selected(self, part: int, selection: Selection) -> None:
        """What the selection of part number ``part`` read, kept, repeated and left out."""
        figures = asdict(selection)
        self._dropped[part].update(figures.pop("filtered"))
        self._sums[part].update(figures)

    def kept(self, part: int, **amounts: int) -> None:
        """A document of part number ``part`` went in, with so many characters, tokens."""
        self._sums[part].update(documents=1, **amounts)

    def contaminated(self, part: int, held_out_item: str) -> None:
        """A document was dropped because it holds ``SET/KEY``; counted by the set."""
        self._contaminated[part][held_out_item.partition("/")[0]] += 1

    def count(self, outcome: Outcome) -> None:
        """Count what became of a document."""
        part = outcome.part
        if outcome.held is not None:
            self.contaminated(part, outcome.held)
        elif outcome.dropped is not None:
            self._dropped[part][outcome.dropped] += 1
        else:
            self.kept(part, **outcome.amounts)
            self._noted[part].update(outcome.noted)

    def refuse_empty(self, what: str) -> None:
        """End the stage when no document is left.

        Raises:
            VerificationError: with the counts of what was dropped.
        """
        total = self._total()
        if total["documents"] == 0:
            raise VerificationError(
                f"{what}: no document is left (contaminated {total['contaminated']}, "
                f"dropped {total['dropped']}); give the parts more data"
            )

    def report(self, **figures: Any) -> dict[str, Any]:
        """The value of ``report.json``: totals, ``figures``, and the counts of each part."""
        parts = [
            {"source": part.source, "adapter": part.adapter, **self._counts(slice(i, i + 1))}
            for i, part in enumerate(self._parts)
        ]
        return {**self._total(), **figures, "parts": parts}

    def _total(self) -> dict[str, Any]:
        return self._counts(slice(None))

    def _counts(self, which: slice) -> dict[str, Any]:
        return {
            "documents": 0,
            **_sum(self._sums[which]),
            "contaminated": _sum(self._contaminated[which]),
            "dropped": _sum(self._dropped[which]),
            "noted": _sum(self._noted[which]),
        }


def _sum(counters: Sequence[Counter[str]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counter in counters:
        total.update(counter)
    return dict(sorted(total.items()))
