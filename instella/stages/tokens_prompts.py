"""Problems as prompts for GRPO: ``prompts.jsonl``.

A prompt is begin of text, the question with the recipe's suffix as one user turn, and
the assistant's tag. The suffix is left out for parts with ``math_prompt: false``.
Prompts longer than ``max_prompt_tokens`` are dropped, as published (recipe/FACTS, GRPO),
and so are problems without a question or an answer; each kind is counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from instella.artifacts.job import Job
from instella.canonical import write_json, write_jsonl
from instella.data.chat import prompt_ids
from instella.data.documents import Problem
from instella.data.ledger import entry
from instella.data.packing import Drawn
from instella.data.shown import question_of
from instella.data.tokenizer import Encoder
from instella.data.tokenizing import Tokenized
from instella.data.units import Outcome
from instella.recipe.settings import PromptData


def run(job: Job) -> None:
    """Write ``prompts.jsonl``, ``documents.jsonl`` and ``report.json``.

    A prompt has key, ids, question and answer; the two files have the same rows.
    """
    made = tokenized(job)
    longest = 0

    def prompts() -> Iterator[Mapping[str, Any]]:
        nonlocal longest
        for outcome in made.outcomes():
            if outcome.line is not None:
                longest = max(longest, outcome.amounts["tokens"])
                yield outcome.line["prompt"]

    count = write_jsonl(job.output / "prompts.jsonl", prompts())
    entries = ({**line["entry"], "row": row} for row, line in enumerate(made.lines()))
    write_jsonl(job.output / "documents.jsonl", entries)
    report = made.ledger.report(longest=longest, prompts=count)
    write_json(job.output / "report.json", report)
    made.clear()
    job.report.say(f"{count:,} prompts, the longest has {longest} tokens")


def tokenized(job: Job) -> Tokenized:
    """The units of the stage."""
    data: PromptData = job.settings["data"]
    suffix = job.settings["prompt_suffix"]
    encode = partial(encode_prompts, max_tokens=data.max_prompt_tokens, suffix=suffix)
    return Tokenized(job, {}, encode, math_prompt=True)


def encode_prompts(
    batch: Sequence[Drawn], encoder: Encoder, max_tokens: int, suffix: str
) -> Iterator[Outcome]:
    """Each problem as a line of ``prompts.jsonl`` and one of the ledger, or dropped."""
    for item in batch:
        problem = item.of_kind(Problem)
        question = question_of(item, problem.question, suffix)
        ids = prompt_ids(question, encoder)
        reason = why_dropped(problem, ids, max_tokens)
        if reason is not None:
            yield Outcome(item.part, dropped=reason)
            continue
        prompt = {
            "key": problem.key,
            "ids": ids,
            "question": problem.question,
            "answer": problem.answer,
        }
        text = f"{problem.question}\n{problem.answer}"
        yield Outcome(
            part=item.part,
            line={"prompt": prompt, "entry": entry(item.source, problem.key, text)},
            amounts={"characters": len(problem.question), "tokens": len(ids)},
        )


def why_dropped(problem: Problem, ids: Sequence[int], max_tokens: int) -> str | None:
    """The reason for which a problem is dropped, if there is one."""
    if not problem.question.strip():
        return "no_question"
    if not problem.answer.strip():
        return "no_answer"
    if len(ids) > max_tokens:
        return "too_long"
    return None
