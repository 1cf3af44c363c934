"""Problems as prompts for GRPO: ``prompts.jsonl``.

A prompt is begin of text, the question with the recipe's suffix as one user turn, and
the assistant's tag. The suffix is left out for parts with ``math_prompt: false``.
Prompts longer than ``max_prompt_tokens`` are dropped, as published (recipe/FACTS, GRPO),
and so are problems without a question or an answer; each kind is counted.
"""

from typing import Any

from instella.artifacts.job import Job
from instella.canonical import write_json, write_jsonl
from instella.data.chat import prompt_ids, with_suffix
from instella.data.contamination import Guard
from instella.data.documents import Problem
from instella.data.ledger import Ledger
from instella.data.packing import Drawn, admitted, draw
from instella.data.tokenizer import Encoder, load
from instella.recipe.settings import PromptData


def run(job: Job) -> None:
    """Write ``prompts.jsonl`` (key, ids, question, answer) and ``report.json``."""
    data: PromptData = job.settings["data"]
    encoder = load(job.inputs["tokenizer"])
    guard = Guard.from_folder(job.inputs["heldout"], job.settings["ngram"])
    ledger = Ledger(data.parts)
    drawn = draw(data.parts, job.inputs, data.seed, math_prompt=True)
    prompts, tokens = [], 0
    for item in admitted(drawn, guard, ledger):
        suffix = job.settings["prompt_suffix"] if item.math_prompt else ""
        prompt = prompt_of(item, suffix, encoder, data.max_prompt_tokens, ledger)
        if prompt is not None:
            prompts.append(prompt)
            tokens += len(prompt["ids"])
            job.report.step(len(prompts), len(drawn), tokens)
    ledger.refuse_empty(job.stage)
    write_jsonl(job.output / "prompts.jsonl", prompts)
    longest = max(len(prompt["ids"]) for prompt in prompts)
    report = ledger.report(drawn=len(drawn), longest=longest, prompts=len(prompts))
    write_json(job.output / "report.json", report)
    job.report.say(f"{len(prompts):,} prompts, the longest has {longest} tokens")


def prompt_of(
    item: Drawn, suffix: str, encoder: Encoder, max_tokens: int, ledger: Ledger
) -> dict[str, Any] | None:
    """One line of ``prompts.jsonl``, or None for a problem that is dropped and counted."""
    problem = item.of_kind(Problem)
    ids = prompt_ids(with_suffix(problem.question, suffix), encoder)
    reason = None
    if not problem.question.strip():
        reason = "no_question"
    elif not problem.answer.strip():
        reason = "no_answer"
    elif len(ids) > max_tokens:
        reason = "too_long"
    if reason is not None:
        ledger.dropped(item.part, reason)
        return None
    ledger.kept(item.part, characters=len(problem.question), tokens=len(ids))
    return {
        "key": problem.key,
        "ids": ids,
        "question": problem.question,
        "answer": problem.answer,
    }
