"""Held-out items as the rows of a task of the harness, and the harness's results as records.

Nothing here imports the harness, so the command line can ask which sets have a task.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from instella.canonical import json_bytes, sha256_bytes
from instella.data.chat import render_text, role_tag, with_suffix
from instella.data.documents import Message
from instella.data.tokenizer import END_OF_TEXT

Row = dict[str, Any]


def rows_of(kind: str, items: Sequence[Row], suffix: str) -> list[Row]:
    """Rows with ``key``, ``cluster`` and what a task of the kind reads.

    Args:
        kind: of the held-out set.
        items: as the held-out artifact holds them; a choice item with an empty choice, which
            has no score, is left out.
        suffix: asks for the form of a problem's answer.
    """
    usable = [item for item in items if kind != "choice" or all(item["choices"])]
    return [
        {"key": item["key"], "cluster": _cluster(item), **_ROWS[kind](item, suffix)}
        for item in usable
    ]


def _cluster(item: Row) -> str:
    """As the stages' records: items of one question are drawn together."""
    question = item.get("question")
    return item["key"] if question is None else sha256_bytes(question.encode("utf-8"))


def _text(item: Row, suffix: str) -> Row:
    return {"text": item["text"]}


def _answer(item: Row, suffix: str) -> Row:
    return {"context": _asked(item["question"]), "target": _said(item["answer"])}


def _preference(item: Row, suffix: str) -> Row:
    """Of equal choices the harness takes the first, so the chosen answer stands last."""
    choices = [_said(item["rejected"]), _said(item["chosen"])]
    return {"context": _asked(item["question"]), "choices": choices, "gold": 1}


def _choice(item: Row, suffix: str) -> Row:
    context = f"Question: {item['question']}\nAnswer:"
    return {"context": context, "choices": list(item["choices"]), "gold": item["gold"]}


def _problem(item: Row, suffix: str) -> Row:
    context = _asked(with_suffix(item["question"], suffix))
    return {"context": context, "answer": item["answer"]}


_ROWS = {
    "text": _text,
    "answer": _answer,
    "preference": _preference,
    "choice": _choice,
    "problem": _problem,
}


def _asked(question: str) -> str:
    """The chat form up to where the assistant answers, begin of text included."""
    return END_OF_TEXT + render_text([Message("user", question)]) + role_tag("assistant")


def _said(answer: str) -> str:
    return answer.strip() + END_OF_TEXT


def record_of(sample: Mapping[str, Any]) -> Row:
    """A record as the stages write them, of what the harness logged for one item.

    It holds the hash of the prompt, every log-likelihood or answer, and the figures, so that
    scores derive from records.
    """
    row, arguments = sample["doc"], sample["arguments"]
    # A whole text has nothing before it.
    prompt = arguments[0][0] if len(arguments[0]) > 1 else ""
    responses = [answers[0] for answers in sample["resps"]]
    record: Row = {
        "key": row["key"],
        "cluster": row["cluster"],
        "prompt_sha256": sha256_bytes(prompt.encode("utf-8")),
        "requests_sha256": sha256_bytes(json_bytes([list(one) for one in arguments])),
        "figures": dict(_figure(name, sample[name]) for name in sorted(sample["metrics"])),
    }
    if isinstance(responses[0], str):
        return record | {"samples": responses, "answers": list(sample["filtered_resps"])}
    if isinstance(responses[0], float):
        return record | {"loglikelihoods": responses}
    values, greedy = zip(*responses, strict=True)
    return record | {"loglikelihoods": list(values), "greedy": list(greedy)}


def _figure(name: str, value: Any) -> tuple[str, list[float]]:
    """Name, and an item's numerator and denominator; a loss is positive.

    A mean of figures is the harness's own, but for perplexity: it is the exponential of what
    stands here, the mean loss of an item in nat.
    """
    if name == "bits_per_byte":
        total, size = value
        return name, [-float(total) / math.log(2), float(size)]
    if name == "perplexity":
        return "loss_per_item", [-float(value), 1.0]
    return name, [float(value), 1.0]
