"""What is measured on a held-out set, one function for each kind of set.

Each returns records, one an item: ``key``, ``cluster`` (items drawn together by the
bootstrap), ``figures`` (name to [numerator, denominator]) and what the figures were made
from, so that another grader or metric can be applied without running the model again.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from instella.data.chat import answer_ids, prompt_ids, with_suffix
from instella.data.tokenizer import Encoder
from instella.evaluation.likelihood import Scored, logprobs
from instella.evaluation.texts import text_ids
from instella.network.network import Instella
from instella.recipe.settings import HeldOutSet
from instella.rewards.extract import last_boxed
from instella.rewards.grade import CORRECT, Grader, refuse_clock
from instella.rollout.generate import Parts, Response, generate

Record = dict[str, Any]


class Sampler(Protocol):
    """Another engine that answers problems with the model under test."""

    def __call__(
        self, prompts: Sequence[Sequence[int]], stream: Sequence[Parts], chosen: HeldOutSet
    ) -> list[list[Response]]:
        """For each prompt, of token ids, as many responses as the set's settings say.

        ``stream`` names the random numbers of each prompt, as for ``rollout.generate``.
        """
        ...


@dataclass(frozen=True)
class Subject:
    """The model under test with its tokenizer and the set's settings.

    ``sampler`` answers problems; where there is none, the network here does.
    """

    network: Instella
    encoder: Encoder
    settings: HeldOutSet
    seed: int
    prompt_suffix: str
    sampler: Sampler | None = None


def text_loss(subject: Subject, items: Sequence[Record]) -> list[Record]:
    """Loss in nat a token of whole texts, each between two end-of-text ids."""
    length = subject.settings.sequence_length
    rows = [Scored(text_ids(subject.encoder, item["text"], length), 1) for item in items]
    return [
        _record(item, {"loss": [-float(values.sum()), float(len(values))]})
        for item, values in zip(items, _score(subject, rows), strict=True)
    ]


def answer_loss(subject: Subject, items: Sequence[Record]) -> list[Record]:
    """Loss in nat a token of the gold answer in the chat form, end included."""
    kept, rows = [], []
    for item in items:
        row = _chat_row(subject, item["question"], item["answer"])
        if len(row.ids) <= subject.settings.sequence_length:
            kept.append(item)
            rows.append(row)
    return [
        _record(item, {"loss": [-float(values.sum()), float(len(values))]})
        for item, values in zip(kept, _score(subject, rows), strict=True)
    ]


def preference_accuracy(subject: Subject, items: Sequence[Record]) -> list[Record]:
    """Right when the chosen answer's mean log-probability is the higher; a tie is wrong."""
    length = subject.settings.sequence_length
    kept, rows = [], []
    for item in items:
        pair = [_chat_row(subject, item["question"], item[side]) for side in ("chosen", "rejected")]
        if max(len(row.ids) for row in pair) <= length:
            kept.append(item)
            rows += pair
    means = [float(values.mean()) for values in _score(subject, rows)]
    records = []
    for item, chosen, rejected in zip(kept, means[::2], means[1::2], strict=True):
        figures = {
            "accuracy": [float(chosen > rejected), 1.0],
            "margin": [chosen - rejected, 1.0],
        }
        records.append(_record(item, figures, chosen=chosen, rejected=rejected))
    return records


def choice_accuracy(subject: Subject, items: Sequence[Record]) -> list[Record]:
    """Multiple choice by log-likelihood under four scorings; a tie counts as wrong.

    The form is OLMES's cloze form without examples: question and answer each behind
    its label. ``acc_uncond`` subtracts the log-likelihood after ``Answer:`` alone. An item
    with an empty choice, which has no score a character, is dropped as too long ones are.
    """
    encoder, length = subject.encoder, subject.settings.sequence_length
    bare = encoder.encode("Answer:")
    kept, rows = [], []
    for item in items:
        context = [encoder.eos_id, *encoder.encode(f"Question: {item['question']}\nAnswer:")]
        choices = [encoder.encode(" " + choice) for choice in item["choices"]]
        fits = len(context) + max(map(len, choices)) <= length
        if not fits or not all([*choices, *item["choices"]]):
            continue
        kept.append(item)
        rows += [Scored([*context, *choice], len(context)) for choice in choices]
        rows += [Scored([encoder.eos_id, *bare, *choice], 1 + len(bare)) for choice in choices]
    scored = iter(_score(subject, rows))
    records = []
    for item in kept:
        conditional = [next(scored) for _ in item["choices"]]
        unconditional = [next(scored) for _ in item["choices"]]
        scores = _choice_scores(item["choices"], conditional, unconditional)
        figures = {
            name: [float(_beats_others(values, item["gold"])), 1.0]
            for name, values in scores.items()
        }
        records.append(_record(item, figures, scores=scores, gold=item["gold"]))
    return records


def _choice_scores(
    choices: Sequence[str],
    conditional: Sequence[np.ndarray],
    unconditional: Sequence[np.ndarray],
) -> dict[str, list[float]]:
    sums = [float(values.sum()) for values in conditional]
    bare = [float(values.sum()) for values in unconditional]
    return {
        "acc_raw": sums,
        "acc_per_token": [total / len(v) for total, v in zip(sums, conditional, strict=True)],
        "acc_per_character": [total / len(c) for total, c in zip(sums, choices, strict=True)],
        "acc_uncond": [total - other for total, other in zip(sums, bare, strict=True)],
    }


def _beats_others(scores: Sequence[float], gold: int) -> bool:
    return all(scores[gold] > score for i, score in enumerate(scores) if i != gold)


def solved_problems(subject: Subject, items: Sequence[Record]) -> list[Record]:
    """pass@1 as the mean over the samples of an item, graded on the last boxed answer."""
    settings, encoder = subject.settings, subject.encoder
    kept, prompts = [], []
    for item in items:
        ids = prompt_ids(with_suffix(item["question"], subject.prompt_suffix), encoder)
        if len(ids) <= settings.sequence_length:
            kept.append(item)
            prompts.append(ids)
    stream = [("evaluation", str(subject.seed), item["key"]) for item in kept]
    groups = _responses(subject, prompts, stream)
    texts = [[encoder.decode(_answer(r.ids, encoder)) for r in group] for group in groups]
    boxed = [[last_boxed(text) for text in own] for own in texts]
    pairs = [(item["answer"], a) for item, own in zip(kept, boxed, strict=True) for a in own]
    with Grader() as grader:
        verdicts = grader.verdicts(pairs)
    refuse_clock(verdicts, "evaluation")
    labels = iter(verdict.label for verdict in verdicts)
    records = []
    for item, group, own, answers in zip(kept, groups, texts, boxed, strict=True):
        judged = [next(labels) for _ in own]
        ended = [a is not None and r.finished for a, r in zip(answers, group, strict=True)]
        figures = {
            "pass@1": [judged.count(CORRECT) / len(own), 1.0],
            "boxed_and_ended": [sum(ended) / len(own), 1.0],
        }
        records.append(_record(item, figures, samples=own, verdicts=judged))
    return records


def _responses(
    subject: Subject, prompts: Sequence[Sequence[int]], stream: Sequence[Parts]
) -> list[list[Response]]:
    settings, encoder = subject.settings, subject.encoder
    if subject.sampler is not None:
        return subject.sampler(prompts, stream, settings)
    return generate(
        subject.network,
        prompts,
        samples=settings.samples,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        eos_id=encoder.eos_id,
        vocabulary=encoder.vocab_size,
        max_prompt_tokens=settings.sequence_length,
        stream=stream,
    )


def _answer(ids: Sequence[int], encoder: Encoder) -> list[int]:
    return [token for token in ids if token != encoder.eos_id]


def _chat_row(subject: Subject, question: str, answer: str) -> Scored:
    context = prompt_ids(question, subject.encoder)
    return Scored([*context, *answer_ids(answer, subject.encoder)], len(context))


def _score(subject: Subject, rows: Sequence[Scored]) -> list[np.ndarray]:
    length = subject.settings.sequence_length
    return logprobs(subject.network, rows, length, subject.encoder.pad_id)


def _record(item: Record, figures: dict[str, list[float]], **evidence: Any) -> Record:
    question = item.get("question")
    cluster = item["key"] if question is None else hashlib.sha256(question.encode()).hexdigest()
    return {"key": item["key"], "cluster": cluster, "figures": figures, **evidence}


MEASURES: dict[str, Callable[[Subject, Sequence[Record]], list[Record]]] = {
    "text": text_loss,
    "answer": answer_loss,
    "preference": preference_accuracy,
    "choice": choice_accuracy,
    "problem": solved_problems,
}
