"""Preference pairs as two rows each: the prompt with the chosen, and with the rejected.

A row is begin of text, the turns before the answers (the last one the user's), the
assistant's tag, the answer and its end of text, padded on the right; the label mask covers
the answer and its end of text, earlier answers are not labelled. Pairs of
which a row is longer than ``sequence_length`` are dropped, so no answer is ever cut; so
are pairs without a question and pairs whose answers have the same ids, since they carry
no preference. Each kind is counted.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from instella.artifacts.job import Job
from instella.data.adapters import texts
from instella.data.chat import answer_ids, fit, prompt_ids
from instella.data.documents import Preference
from instella.data.ledger import entry
from instella.data.packing import Drawn
from instella.data.shown import question_of
from instella.data.tokenizer import Encoder
from instella.data.tokenizing import Tokenized
from instella.data.units import Outcome
from instella.recipe.settings import ChatData

COLUMNS = {
    "chosen_input_ids": "uint16",
    "chosen_label_mask": "bool",
    "rejected_input_ids": "uint16",
    "rejected_label_mask": "bool",
}


def run(job: Job) -> None:
    """Write the four arrays, ``documents.jsonl`` and ``report.json``."""
    report = tokenized(job).save_rows(job.settings["data"].sequence_length, "pairs")
    job.report.say(f"{report['pairs']:,} pairs")


def tokenized(job: Job) -> Tokenized:
    """The units of the stage."""
    data: ChatData = job.settings["data"]
    suffix = job.settings["prompt_suffix"]
    encode = partial(encode_pairs, length=data.sequence_length, suffix=suffix)
    return Tokenized(job, COLUMNS, encode)


def encode_pairs(
    batch: Sequence[Drawn], encoder: Encoder, length: int, suffix: str
) -> Iterator[Outcome]:
    """Each pair as two rows of ``length``, or dropped."""
    for item in batch:
        document = item.of_kind(Preference)
        question = question_of(item, document.question, suffix)
        prompt = prompt_ids(question, encoder, document.history)
        answers = [answer_ids(text, encoder) for text in (document.chosen, document.rejected)]
        reason = why_dropped(document, prompt, answers, length)
        if reason is not None:
            yield Outcome(item.part, dropped=reason)
            continue
        pieces = texts(document)
        names = ("empty_chosen", "empty_rejected")
        yield Outcome(
            part=item.part,
            line=entry(item.source, document.key, "\n".join(pieces)),
            amounts={
                "characters": sum(map(len, pieces)),
                "tokens": 2 * len(prompt) + sum(map(len, answers)),
            },
            noted={n: 1 for n, ids in zip(names, answers, strict=True) if len(ids) == 1},
            columns=tuple(
                array
                for answer in answers
                for array in row_of(prompt, answer, length, encoder.pad_id)
            ),
        )


def why_dropped(
    document: Preference, prompt: Sequence[int], answers: Sequence[Sequence[int]], length: int
) -> str | None:
    """The reason for which a pair is dropped, if there is one."""
    if not document.question.strip():
        return "no_question"
    if answers[0] == answers[1]:
        return "same_answers"
    if len(prompt) + max(map(len, answers)) > length:
        return "too_long"
    return None


def row_of(
    prompt: list[int], answer: list[int], length: int, pad_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ids, uint16 [length], and label mask, bool [length]."""
    mask = [False] * len(prompt) + [True] * len(answer)
    return fit(prompt + answer, mask, length, pad_id)
