"""From the parts of a mixture to the outcomes of its documents, unit by unit.

A stage names its columns and how documents become outcomes; here the documents are
spooled in their order, checked against the held-out items, encoded by any number of
workers and joined in order. Memory does not grow with the data.
"""

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from instella.artifacts.job import Job
from instella.artifacts.locks import hold, nobody_waits
from instella.canonical import write_json, write_jsonl, write_npy_blocks
from instella.data.adapters import texts
from instella.data.contamination import Guard
from instella.data.ledger import Ledger
from instella.data.mixture import Mixture, spool
from instella.data.packing import Drawn
from instella.data.tokenizer import Encoder, load
from instella.data.units import Outcome, Units
from instella.data.workers import Work, in_order
from instella.recipe.settings import ChatData, PretrainData, PromptData

BATCH_DOCUMENTS, BATCH_CHARACTERS = 64, 1 << 18
"""Most documents encoded in one call, and the characters at which a batch is closed."""

SPOOL_LOCK = "documents.lock"

Encode = Callable[[Sequence[Drawn], Encoder], Iterable[Outcome]]
"""One outcome for each document, in their order; a picklable function."""


@dataclass(frozen=True)
class Plan:
    """All that a worker has to know to make any unit of a stage.

    Attributes:
        data: parts and seed.
        math_prompt: default of the parts' option of that name.
        inputs: role to folder.
        scratch: spool and units.
        ngram: words of the contamination check.
        columns: name to dtype of each column.
        encode: what becomes of admitted documents.
        enough: values of the first column that the stage needs at most.
    """

    data: PretrainData | ChatData | PromptData
    math_prompt: bool
    inputs: Mapping[str, Path]
    scratch: Path
    ngram: int
    columns: Mapping[str, str]
    encode: Encode
    enough: int | None

    def units(self) -> Units:
        """The units in the scratch folder."""
        return Units(self.scratch / "units", self.columns)

    def mixture(self, waiting: Callable[[], None] = nobody_waits) -> Mixture:
        """The spooled mixture, made if it is not there; ``waiting``: told if another makes it."""
        folder = self.scratch / "documents"
        with hold(self.scratch / SPOOL_LOCK, waiting):
            return spool(self.data.parts, self.inputs, self.data.seed, folder, self.math_prompt)


def prepare(plan: Plan) -> Work:
    """The function that makes a unit, unless it is there."""
    mixture, units = plan.mixture(), plan.units()
    encoder = load(plan.inputs["tokenizer"])
    guard = Guard.from_folder(plan.inputs["heldout"], plan.ngram)

    def work(number: int) -> None:
        if not units.is_done(number):
            outcomes = encoded(mixture.unit(number), guard, encoder, plan.encode)
            units.write(number, outcomes, plan.enough)

    return work


def encoded(
    documents: Iterable[Drawn], guard: Guard, encoder: Encoder, encode: Encode
) -> Iterator[Outcome]:
    """The outcome of each document; those with a held-out item are not encoded."""
    for batch in batches(documents):
        held = [guard.holds(item.document) for item in batch]
        admitted = [item for item, owner in zip(batch, held, strict=True) if owner is None]
        made = iter(encode(admitted, encoder))
        for item, owner in zip(batch, held, strict=True):
            yield next(made) if owner is None else Outcome(item.part, held=owner)


def batches(documents: Iterable[Drawn]) -> Iterator[list[Drawn]]:
    """Documents in runs that are short in number and in characters."""
    batch: list[Drawn] = []
    characters = 0
    for item in documents:
        batch.append(item)
        characters += sum(map(len, texts(item.document)))
        if len(batch) == BATCH_DOCUMENTS or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class Tokenized:
    """The outcomes of a stage's documents in their order, counted as they are read.

    Args:
        job: data, inputs, scratch and workers.
        columns: name to dtype of each column.
        encode: what becomes of admitted documents.
        math_prompt: default of the parts' option of that name.
        enough: values of the first column that the stage needs at most.

    Attributes:
        ledger: counts of what was read so far.
        drawn: documents of the mixture, each repetition counted.
    """

    def __init__(
        self,
        job: Job,
        columns: Mapping[str, str],
        encode: Encode,
        *,
        math_prompt: bool = False,
        enough: int | None = None,
    ) -> None:
        self._job = job
        self._plan = Plan(
            data=job.settings["data"],
            math_prompt=math_prompt,
            inputs=dict(job.inputs),
            scratch=job.scratch,
            ngram=job.settings["ngram"],
            columns=columns,
            encode=encode,
            enough=enough,
        )
        mixture = self._plan.mixture(self._say_waiting)
        self._numbers = range(len(mixture.units))
        self._units = self._plan.units()
        self._read: list[int] = []
        self.drawn = mixture.drawn
        self.ledger = Ledger(self._plan.data.parts)
        for number, selection in enumerate(mixture.selections):
            self.ledger.selected(number, selection)

    def _say_waiting(self) -> None:
        self._job.report.say("another process reads the sources; waiting for its end")

    def make_share(self, share: int, shares: int) -> None:
        """Make every ``shares``-th unit from the ``share``-th (from 1) on, as long as it is needed.

        Units are dealt out like cards, so shares that run side by side reach the unit with
        which the stage has enough at about the same time.
        """
        mine = self._numbers[share - 1 :: shares]
        made, is_enough = 0, self._is_enough()
        with closing(in_order(mine, self._job.workers, prepare, self._plan)) as pieces:
            while made < len(mine) and not next(is_enough):
                next(pieces)
                made += 1
                self._job.report.step(made, len(mine))
        rest = len(mine) - made
        told = f"; {rest} more are not needed" if rest else ""
        self._job.report.say(f"share {share}/{shares}: {made} units of {len(mine)} are there{told}")

    def _is_enough(self) -> Iterator[bool]:
        """Whether the finished units from the first on hold all that the stage needs."""
        found, first, enough = 0, 0, self._plan.enough
        if enough is None:
            yield from repeat(False)
            return
        while True:
            while first < len(self._numbers) and (more := self._units.values(first)) is not None:
                found, first = found + more, first + 1
            yield found >= enough

    def outcomes(self) -> Iterator[Outcome]:
        """All outcomes, or those up to where the caller stops; once."""
        met = tokens = 0
        for number in in_order(self._numbers, self._job.workers, prepare, self._plan):
            self._read.append(number)
            for outcome in self._units.outcomes(number):
                self.ledger.count(outcome)
                met += 1
                tokens += outcome.amounts.get("tokens", 0)
                yield outcome
            self._job.report.step(met, self.drawn, tokens)
        self.ledger.refuse_empty(self._job.stage)

    def lines(self) -> Iterator[Mapping[str, Any]]:
        """The lines of the outcomes that were read."""
        for number in self._read:
            for outcome in self._units.outcomes(number):
                if outcome.line is not None:
                    yield outcome.line

    def save_rows(self, length: int, counted: str) -> dict[str, Any]:
        """Write every column as an array [rows, length], the ledger of the rows and the report.

        Args:
            length: of a row.
            counted: name of the number of rows in the report.

        Returns:
            The report.
        """
        made = (outcome.line for outcome in self.outcomes() if outcome.line is not None)
        entries = ({**line, "row": row} for row, line in enumerate(made))
        rows = write_jsonl(self._job.output / "documents.jsonl", entries)
        for column in self._plan.columns:
            self.save(column, (rows, length))
        report = self.ledger.report(sequence_length=length, **{counted: rows})
        write_json(self._job.output / "report.json", report)
        self.clear()
        return report

    def save(self, column: str, shape: tuple[int, ...]) -> None:
        """Write ``COLUMN.npy``: what was read, cut behind an array of ``shape``."""
        dtype = self._plan.columns[column]
        size = np.dtype(dtype).itemsize * math.prod(shape)
        blocks = self._units.blocks(self._read, column, size)
        write_npy_blocks(self._job.output / f"{column}.npy", dtype, shape, blocks)

    def clear(self) -> None:
        """Remove spool and units; nobody else may work on the stage."""
        (self._job.scratch / SPOOL_LOCK).unlink()
        for name in ("documents", "units"):
            shutil.rmtree(self._job.scratch / name)
