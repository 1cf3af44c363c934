"""Conversations as rows of ids with label masks, one conversation a row, no packing.

The form of a row, and what becomes of odd conversations, is told in
``instella.data.chat``. Parts with the option ``math_prompt: true`` have the recipe's
prompt suffix after each user turn.
"""

from dataclasses import replace
from typing import Any

from instella.artifacts.job import Job
from instella.canonical import write_json, write_jsonl
from instella.data.chat import fit, oddities, render_text, row_ids, with_suffix
from instella.data.contamination import Guard
from instella.data.documents import Conversation, Message
from instella.data.ledger import Ledger, entry
from instella.data.packing import Drawn, RowSpool, admitted, draw
from instella.data.tokenizer import Encoder, load
from instella.recipe.settings import ChatData


def run(job: Job) -> None:
    """Write ``input_ids.npy``, ``label_mask.npy``, ``documents.jsonl``, ``report.json``."""
    data: ChatData = job.settings["data"]
    length = data.sequence_length
    encoder = load(job.inputs["tokenizer"])
    guard = Guard.from_folder(job.inputs["heldout"], job.settings["ngram"])
    ledger = Ledger(data.parts)
    drawn = draw(data.parts, job.inputs, data.seed)
    entries: list[dict[str, Any]] = []
    labels = tokens = 0
    with RowSpool(job.scratch, "", length) as rows:
        for item in admitted(drawn, guard, ledger):
            messages = suffixed(item, job.settings["prompt_suffix"])
            row = labelled_row(item, messages, encoder, length, ledger)
            if row is None:
                continue
            ids, mask = row
            text = render_text(messages)
            entries.append(entry(item.source, item.document.key, text, row=len(entries)))
            rows.append(*fit(ids, mask, length, encoder.pad_id))
            labels += sum(mask[:length])
            tokens += min(len(ids), length)
            job.report.step(len(entries), len(drawn), tokens)
        ledger.refuse_empty(job.stage)
        rows.save(job.output)
    write_jsonl(job.output / "documents.jsonl", entries)
    report = ledger.report(
        drawn=len(drawn), sequence_length=length, rows=len(entries), labels=labels
    )
    write_json(job.output / "report.json", report)
    job.report.say(f"{len(entries):,} rows, {labels:,} labels")


def suffixed(item: Drawn, suffix: str) -> tuple[Message, ...]:
    """The conversation's messages; with ``math_prompt``, the suffix after user turns."""
    messages = item.of_kind(Conversation).messages
    if not item.math_prompt:
        return messages
    return tuple(
        replace(message, content=with_suffix(message.content, suffix))
        if message.role == "user"
        else message
        for message in messages
    )


def labelled_row(
    item: Drawn, messages: tuple[Message, ...], encoder: Encoder, length: int, ledger: Ledger
) -> tuple[list[int], list[bool]] | None:
    """Uncut ids and mask, or None without a label in ``length``; all of it counted."""
    ids, mask = row_ids(messages, encoder)
    if not any(mask[:length]):
        reason = "no_label" if not any(mask) else "no_label_after_cut"
        ledger.dropped(item.part, reason)
        return None
    for name in oddities(messages):
        ledger.noted(item.part, name)
    ledger.noted(item.part, "cut", int(len(ids) > length))
    characters = sum(len(message.content) for message in messages)
    ledger.kept(item.part, characters=characters, tokens=min(len(ids), length))
    return ids, mask
