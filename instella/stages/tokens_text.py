"""Documents as one packed stream of token ids for next-token training.

``tokens.npy`` holds whole windows only: the stream is cut behind the last full window of
``sequence_length`` that ends within ``max_tokens``. Documents lie end to end, each closed
by the end of text; a window knows nothing of their borders (recipe/FACTS A, D).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from instella.artifacts.job import Job
from instella.canonical import write_json, write_jsonl
from instella.data.ledger import clip, entry
from instella.data.packing import Drawn, plain_text
from instella.data.tokenizer import Encoder, to_uint16
from instella.data.tokenizing import Tokenized
from instella.data.units import Outcome
from instella.errors import VerificationError
from instella.recipe.settings import PretrainData

COLUMNS = {"tokens": "uint16"}


def run(job: Job) -> None:
    """Write ``tokens.npy`` (uint16), ``documents.jsonl`` and ``report.json``."""
    data: PretrainData = job.settings["data"]
    made = tokenized(job)
    stream = Stream(made, data, job.stage)
    count = write_jsonl(job.output / "documents.jsonl", stream.entries())
    made.save("tokens", (stream.kept,))
    report = made.ledger.report(
        sequence_length=data.sequence_length,
        windows=stream.kept // data.sequence_length,
        tokens_in_windows=stream.kept,
        tokens_cut=stream.size - stream.kept,
    )
    write_json(job.output / "report.json", report)
    made.clear()
    job.report.say(f"{stream.kept:,} tokens, {count:,} documents")


def tokenized(job: Job) -> Tokenized:
    """The units of the stage."""
    data: PretrainData = job.settings["data"]
    return Tokenized(job, COLUMNS, encode_texts, enough=data.max_tokens)


def encode_texts(batch: Sequence[Drawn], encoder: Encoder) -> Iterator[Outcome]:
    """Each document's ids and the end of text; those without a visible sign are dropped."""
    texts = [plain_text(item.document) for item in batch]
    full = iter(encoder.encode_batch([text for text in texts if text.strip()]))
    for item, text in zip(batch, texts, strict=True):
        if not text.strip():
            yield Outcome(item.part, dropped="empty")
            continue
        ids = to_uint16([*next(full), encoder.eos_id])
        special = int(np.count_nonzero(ids[:-1] == encoder.eos_id))
        yield Outcome(
            part=item.part,
            line=entry(item.source, item.document.key, text),
            amounts={"characters": len(text), "tokens": len(ids)},
            noted={"special_token_in_text": special} if special else {},
            columns=(ids,),
        )


class Stream:
    """Documents end to end, up to the one that reaches ``max_tokens``.

    Attributes:
        size: tokens so far.
        kept: tokens in whole windows; known behind the last entry.
    """

    def __init__(self, made: Tokenized, data: PretrainData, stage: str) -> None:
        self._made = made
        self._data = data
        self._stage = stage
        self.size = 0
        self.kept = 0

    def entries(self) -> Iterator[dict[str, Any]]:
        """The ledger's entry of each document, ``end`` behind its end of text.

        An entry is held back until the windows up to its end are full.

        Raises:
            VerificationError: there is not a single whole window.
        """
        waiting: deque[dict[str, Any]] = deque()
        limit = self._data.max_tokens
        for outcome in self._made.outcomes():
            if outcome.line is None:
                continue
            start = self.size
            self.size += outcome.amounts["tokens"]
            waiting.append({**outcome.line, "start": start, "end": self.size})
            whole = whole_windows(self.size, self._data)
            while waiting and waiting[0]["end"] <= whole:
                yield waiting.popleft()
            if limit is not None and self.size >= limit:
                break
        self.kept = whole_windows(self.size, self._data)
        if self.kept == 0:
            raise VerificationError(
                f"{self._stage}: {self.size} tokens are less than one window of "
                f"{self._data.sequence_length}; give the parts more data or shorten "
                "sequence_length"
            )
        yield from clip(waiting, self.kept)


def whole_windows(tokens: int, data: PretrainData) -> int:
    """Tokens of the whole windows within ``tokens`` and ``data.max_tokens``."""
    limit = tokens if data.max_tokens is None else min(tokens, data.max_tokens)
    return limit // data.sequence_length * data.sequence_length
