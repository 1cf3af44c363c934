"""Conversations as rows of ids with label masks, one conversation a row, no packing.

The form of a row, and what becomes of odd conversations, is told in
``instella.data.chat``. Parts with the option ``math_prompt: true`` have the recipe's
prompt suffix after each user turn.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from instella.artifacts.job import Job
from instella.data.chat import fit, oddities, render_text, row_ids
from instella.data.ledger import entry
from instella.data.packing import Drawn
from instella.data.shown import turns_of
from instella.data.tokenizer import Encoder
from instella.data.tokenizing import Tokenized
from instella.data.units import Outcome
from instella.recipe.settings import ChatData

COLUMNS = {"input_ids": "uint16", "label_mask": "bool"}


def run(job: Job) -> None:
    """Write ``input_ids.npy``, ``label_mask.npy``, ``documents.jsonl``, ``report.json``."""
    report = tokenized(job).save_rows(job.settings["data"].sequence_length, "rows")
    job.report.say(f"{report['rows']:,} rows, {report['labels']:,} labels")


def tokenized(job: Job) -> Tokenized:
    """The units of the stage."""
    data: ChatData = job.settings["data"]
    suffix = job.settings["prompt_suffix"]
    encode = partial(encode_rows, length=data.sequence_length, suffix=suffix)
    return Tokenized(job, COLUMNS, encode)


def encode_rows(
    batch: Sequence[Drawn], encoder: Encoder, length: int, suffix: str
) -> Iterator[Outcome]:
    """Each conversation as a row of ``length``, or dropped without a label in it."""
    for item in batch:
        messages = turns_of(item, suffix)
        ids, mask = row_ids(messages, encoder)
        if not any(mask[:length]):
            reason = "no_label" if not any(mask) else "no_label_after_cut"
            yield Outcome(item.part, dropped=reason)
            continue
        noted = dict.fromkeys(oddities(messages), 1)
        if len(ids) > length:
            noted["cut"] = 1
        yield Outcome(
            part=item.part,
            line=entry(item.source, item.document.key, render_text(messages)),
            amounts={
                "characters": sum(len(message.content) for message in messages),
                "tokens": min(len(ids), length),
                "labels": sum(mask[:length]),
            },
            noted=noted,
            columns=fit(ids, mask, length, encoder.pad_id),
        )
