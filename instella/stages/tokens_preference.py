"""Preference pairs as two rows each: the prompt with the chosen, and with the rejected.

A row is begin of text, one user turn, the assistant's tag, the answer and its end of
text, padded on the right; the label mask covers the answer and its end of text. Pairs of
which a row is longer than ``sequence_length`` are dropped, so no answer is ever cut; so
are pairs without a question and pairs whose answers have the same ids, since they carry
no preference. Each kind is counted.
"""

from typing import Any

from instella.artifacts.job import Job
from instella.canonical import write_json, write_jsonl
from instella.data.chat import answer_ids, fit, prompt_ids, with_suffix
from instella.data.contamination import Guard
from instella.data.documents import Preference
from instella.data.ledger import Ledger, entry
from instella.data.packing import Drawn, RowSpool, admitted, draw
from instella.data.tokenizer import Encoder, load
from instella.recipe.settings import ChatData


def run(job: Job) -> None:
    """Write the four arrays, ``documents.jsonl`` and ``report.json``."""
    data: ChatData = job.settings["data"]
    length = data.sequence_length
    encoder = load(job.inputs["tokenizer"])
    guard = Guard.from_folder(job.inputs["heldout"], job.settings["ngram"])
    ledger = Ledger(data.parts)
    drawn = draw(data.parts, job.inputs, data.seed)
    entries: list[dict[str, Any]] = []
    tokens = 0
    with (
        RowSpool(job.scratch, "chosen_", length) as chosen,
        RowSpool(job.scratch, "rejected_", length) as rejected,
    ):
        for item in admitted(drawn, guard, ledger):
            suffix = job.settings["prompt_suffix"] if item.math_prompt else ""
            pair = pair_ids(item, suffix, encoder, length, ledger)
            if pair is None:
                continue
            prompt, answers = pair
            document = item.of_kind(Preference)
            text = "\n".join((document.question, document.chosen, document.rejected))
            entries.append(entry(item.source, document.key, text, row=len(entries)))
            for rows, answer in zip((chosen, rejected), answers, strict=True):
                mask = [False] * len(prompt) + [True] * len(answer)
                rows.append(*fit(prompt + answer, mask, length, encoder.pad_id))
                tokens += len(mask)
            job.report.step(len(entries), len(drawn), tokens)
        ledger.refuse_empty(job.stage)
        chosen.save(job.output)
        rejected.save(job.output)
    write_jsonl(job.output / "documents.jsonl", entries)
    report = ledger.report(drawn=len(drawn), sequence_length=length, pairs=len(entries))
    write_json(job.output / "report.json", report)
    job.report.say(f"{len(entries):,} pairs")


def pair_ids(
    item: Drawn, suffix: str, encoder: Encoder, length: int, ledger: Ledger
) -> tuple[list[int], tuple[list[int], list[int]]] | None:
    """Prompt and both answers as ids, or None for a pair that is dropped and counted."""
    document = item.of_kind(Preference)
    prompt = prompt_ids(with_suffix(document.question, suffix), encoder)
    chosen = answer_ids(document.chosen, encoder)
    rejected = answer_ids(document.rejected, encoder)
    reason = None
    if not document.question.strip():
        reason = "no_question"
    elif chosen == rejected:
        reason = "same_answers"
    elif len(prompt) + max(len(chosen), len(rejected)) > length:
        reason = "too_long"
    if reason is not None:
        ledger.dropped(item.part, reason)
        return None
    characters = len(document.question) + len(document.chosen) + len(document.rejected)
    tokens = 2 * len(prompt) + len(chosen) + len(rejected)
    ledger.kept(item.part, characters=characters, tokens=tokens)
    for name, answer in (("empty_chosen", chosen), ("empty_rejected", rejected)):
        ledger.noted(item.part, name, int(len(answer) == 1))
    return prompt, (chosen, rejected)
