"""Which documents lie in which steps of a training, from a ledger and the training's order.

An example is what an order counts: a window of a packed stream, a row, or a prompt. A
ledger's entry covers one or more examples; the order says in which updates each example
is seen, so the two together name the documents of a step and the steps of a document.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from instella.canonical import parse_json
from instella.errors import VerificationError

LEDGER = "documents.jsonl"


class Order(Protocol):
    """What is asked of ``instella.training.order.Cursor``."""

    @property
    def count(self) -> int:
        """Examples of one epoch."""

    @property
    def total_steps(self) -> int:
        """Updates of the whole run."""

    def at(self, step: int) -> tuple[int, np.ndarray]:
        """Epoch and examples of update ``step``, from 0."""


@dataclass
class Seen:
    """How much of something was seen.

    Attributes:
        documents: documents of which at least one example was seen.
        examples: sightings of examples, repetitions counted.
        tokens: tokens of those documents in sighted windows, repetitions counted; for
            rows and prompts 0, since the ledger does not hold their length.
        first, last: first and last update, from 1; 0 for none.
    """

    documents: int = 0
    examples: int = 0
    tokens: int = 0
    first: int = 0
    last: int = 0

    def add(self, examples: int, tokens: int, first: int, last: int) -> None:
        """Count one document that was seen."""
        self.documents += 1
        self.examples += examples
        self.tokens += tokens
        self.first = min(self.first, first) if self.first else first
        self.last = max(self.last, last)


@dataclass(frozen=True)
class Training:
    """A training as far as its data goes.

    Attributes:
        tokens: folder of the tokens artifact.
        order: examples of each update.
        window: tokens of an example in a packed stream; None where examples are rows.
    """

    tokens: Path
    order: Order
    window: int | None = None

    def entries(self) -> Iterator[dict[str, Any]]:
        """The ledger, entry by entry."""
        return read_ledger(self.tokens)

    def examples(self, entry: dict[str, Any]) -> range:
        """The examples in which a document of the ledger lies."""
        if self.window is None:
            return range(entry["row"], entry["row"] + 1)
        return range(entry["start"] // self.window, -(-entry["end"] // self.window))

    def tokens_in(self, entry: dict[str, Any], example: int) -> int:
        """Tokens of a document in an example; 0 where examples are rows."""
        if self.window is None:
            return 0
        start = example * self.window
        return min(entry["end"], start + self.window) - max(entry["start"], start)


def read_ledger(folder: Path) -> Iterator[dict[str, Any]]:
    """The entries of a tokens artifact, in its order; memory stays flat.

    Raises:
        VerificationError: a line that is no entry.
    """
    path = folder / LEDGER
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            entry = parse_json(line, f"{path}, line {number}")
            if not isinstance(entry, dict) or not {"source", "key", "sha256"} <= set(entry):
                raise VerificationError(f"{path}, line {number}: no entry of a ledger")
            yield entry


class Sightings:
    """In how many updates each example is seen, and in which first and last.

    Attributes:
        times: uint32 [examples].
        first, last: uint32 [examples], updates from 1; 0 for none.
    """

    def __init__(self, order: Order) -> None:
        self.times = np.zeros(order.count, dtype=np.uint32)
        self.first = np.zeros(order.count, dtype=np.uint32)
        self.last = np.zeros(order.count, dtype=np.uint32)
        for step in range(order.total_steps):
            _, examples = order.at(step)
            self.times[examples] += 1
            new = examples[self.first[examples] == 0]
            self.first[new] = step + 1
            self.last[examples] = step + 1


def summary(training: Training) -> dict[str, Seen]:
    """What a training saw of each source, by name in sorted order."""
    sightings = Sightings(training.order)
    found: dict[str, Seen] = {}
    for entry in training.entries():
        examples = [item for item in training.examples(entry) if sightings.times[item]]
        if not examples:
            continue
        times = [int(sightings.times[item]) for item in examples]
        tokens = [training.tokens_in(entry, item) for item in examples]
        found.setdefault(entry["source"], Seen()).add(
            sum(times),
            sum(many * size for many, size in zip(times, tokens, strict=True)),
            min(int(sightings.first[item]) for item in examples),
            max(int(sightings.last[item]) for item in examples),
        )
    return dict(sorted(found.items()))


@dataclass
class Located:
    """A document of a step: its entry and the updates in which it lies."""

    entry: dict[str, Any]
    steps: list[int] = field(default_factory=list)


def documents_in(training: Training, first: int, last: int) -> Iterator[Located]:
    """The documents in updates ``first`` to ``last`` (from 1, both included), as the ledger goes.

    A document that closes a window and one that opens it are both in it, as are all between.
    """
    steps: dict[int, list[int]] = {}
    for step in range(first, min(last, training.order.total_steps) + 1):
        for example in training.order.at(step - 1)[1].tolist():
            steps.setdefault(example, []).append(step)
    for entry in training.entries():
        found = {step for item in training.examples(entry) for step in steps.get(item, ())}
        if found:
            yield Located(entry, sorted(found))


def steps_of(training: Training, entries: list[dict[str, Any]]) -> list[Located]:
    """The updates, from 1, in which documents of the ledger lie; those in none too."""
    wanted: dict[int, list[Located]] = {}
    found = [Located(entry) for entry in entries]
    for item in found:
        for example in training.examples(item.entry):
            wanted.setdefault(example, []).append(item)
    numbers = np.array(sorted(wanted), dtype=np.uint32)
    for step in range(training.order.total_steps):
        _, examples = training.order.at(step)
        for example in examples[np.isin(examples, numbers)].tolist():
            for item in wanted[example]:
                if step + 1 not in item.steps[-1:]:
                    item.steps.append(step + 1)
    return found
