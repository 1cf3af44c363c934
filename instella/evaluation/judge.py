"""Answers judged by a language model behind an endpoint: marks, or which of two is better.

A judge's replies are kept by the hash of the request (``synthesis.transcript``), so the
records follow from the transcript, and another reading of the replies needs no judge.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes, parse_json, sha256_bytes
from instella.errors import BadUse, VerificationError
from instella.evaluation.answers import turns_of
from instella.recipe.fields import FieldReader
from instella.recipe.settings import setting
from instella.recipe.tree import read_tree

FILE = "judges.yaml"
MAX_BYTES = 16 << 20
_PLACEHOLDER = re.compile(r"\{(\w+)\}")

Row = dict[str, Any]
Ask = Callable[[Row], str]


@dataclass(frozen=True)
class Judging:
    """A protocol of ``suites/judges.yaml``."""

    kind: str = setting("what the judge gives", choices=("rating", "pair"))
    templates: tuple[str, ...] = setting("names of its prompts, one a turn")
    verdict: str = setting("pattern whose first group is the verdict")
    marks: tuple[float, ...] = setting("lowest and highest figure")
    temperature: float = setting("of its replies", at_least=0)
    max_tokens: int = setting("longest reply", at_least=1)
    note: str = setting("what has to be known")
    reference_templates: tuple[str, ...] = setting("with a reference answer", default=())
    reference_categories: tuple[str, ...] = setting("whose questions have one", default=())


@dataclass(frozen=True)
class _Judgings:
    protocols: dict[str, Judging] = setting("by name")


def read_judgings(folder: Path) -> dict[str, Judging]:
    """The protocols of a published folder, by name; BadUse with file and line of a fault."""
    path = folder / "suites" / FILE
    read: _Judgings = FieldReader(str(path)).read(_Judgings, read_tree(path))
    return read.protocols


def read_given(path: Path, digest: str) -> list[Row]:
    """JSON lines that a user names with their SHA-256.

    Raises:
        BadUse: no such file, or one that is too large.
        VerificationError: other bytes, or a line that is no object.
    """
    data = given_bytes(path, digest)
    rows = [parse_json(line, f"{path}, line {n}") for n, line in enumerate(data.splitlines(), 1)]
    if not all(isinstance(row, dict) for row in rows):
        raise VerificationError(f"{path}: a line is no object")
    return rows


def given_bytes(path: Path, digest: str) -> bytes:
    """A file that a user names with its SHA-256; raises as ``read_given``."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else None
    except OSError as error:
        raise BadUse(f"{path}: {error.strerror}: give a readable file") from None
    if data is None:
        raise BadUse(f"{path}: more than {MAX_BYTES} bytes; give a file of the judge's protocol")
    if sha256_bytes(data) != digest:
        raise VerificationError(f"{path}: SHA-256 is {sha256_bytes(data)}, not {digest}")
    return data


class Judge:
    """Makes requests of questions and answers, and figures of replies.

    Args:
        protocol: how.
        prompts: objects with ``name``, ``system_prompt`` and ``prompt_template``.
        model: that the server calls by this name.

    Raises:
        BadUse: a template that the prompts lack.
    """

    def __init__(self, protocol: Judging, prompts: Sequence[Row], model: str) -> None:
        self._protocol, self._model = protocol, model
        self._prompts = {str(row.get("name")): row for row in prompts}
        for name in (*protocol.templates, *protocol.reference_templates):
            texts = [self._prompts.get(name, {}).get(key) for key in _PROMPT_KEYS]
            if not all(isinstance(text, str) for text in texts):
                raise BadUse(f"prompts: none is called {name}; give the file of the protocol")

    def requests(self, question: Row, answers: Sequence[str], other: Sequence[str]) -> list[Row]:
        """One request a turn for a rating, one in all for a pair.

        Args:
            question: ``question_id``, ``turns`` and for a rating ``category``, ``reference``.
            answers: of each turn.
            other: the answers to compare with, for a pair.
        """
        if self._protocol.kind == "pair":
            first, second = (other, answers) if _is_turned(question) else (answers, other)
            values = {"instruction": question["turns"][0], "output_1": first[0],
                      "output_2": second[0]}  # fmt: skip
            return [self._request(self._protocol.templates[0], values)]
        references = question.get("reference") or []
        has_reference = question.get("category") in self._protocol.reference_categories
        names = self._protocol.reference_templates if has_reference else self._protocol.templates
        if has_reference and len(references) < len(answers):
            raise BadUse(f"question {question['question_id']}: has no reference for each turn")
        found = []
        for turn, answer in enumerate(answers):
            values = {"question": question["turns"][turn], "answer": answer}
            if has_reference:
                values["ref_answer_1"] = references[0]
            for number in range(turn + 1):
                values[f"question_{number + 1}"] = question["turns"][number]
                values[f"answer_{number + 1}"] = answers[number]
                if has_reference:
                    values[f"ref_answer_{number + 1}"] = references[number]
            found.append(self._request(names[min(turn, len(names) - 1)], values))
        return found

    def _request(self, name: str, values: Mapping[str, str]) -> Row:
        prompt = self._prompts[name]
        messages = [
            {"role": role, "content": _filled(prompt[key], values, name)}
            for role, key in zip(("system", "user"), _PROMPT_KEYS, strict=True)
            if prompt[key]
        ]
        return {
            "model": self._model,
            "messages": messages,
            "temperature": self._protocol.temperature,
            "max_tokens": self._protocol.max_tokens,
        }

    def record(self, question: Row, replies: Sequence[str]) -> Row:
        """The record of one question, from the judge's replies alone."""
        marks = [self._mark(reply, question) for reply in replies]
        given = [mark for mark in marks if mark is not None]
        return {
            "key": str(question["question_id"]),
            "cluster": str(question["question_id"]),
            "replies": list(replies),
            "verdicts": marks,
            "figures": {
                self._protocol.kind: [sum(given), float(len(given))],
                "unjudged": [float(len(marks) - len(given)), float(len(marks))],
            },
        }

    def _mark(self, reply: str, question: Row) -> float | None:
        found = re.search(self._protocol.verdict, reply)
        if found is None:
            return None
        if self._protocol.kind == "pair":
            # m is the first that was shown
            return float((found[1] == "m") != _is_turned(question))
        low, high = self._protocol.marks
        mark = float(found[1])
        return mark if low <= mark <= high else None


_PROMPT_KEYS = ("system_prompt", "prompt_template")


def _is_turned(question: Row) -> bool:
    """Whether the other answer is shown first: half of the questions, by their hash."""
    return bool(int(sha256_bytes(json_bytes(question["question_id"]))[0], 16) & 1)


def _filled(template: str, values: Mapping[str, str], name: str) -> str:
    """The template with its placeholders replaced, once; what a text holds is left alone."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise BadUse(f"prompt {name}: asks for {found[1]}, which the questions do not give")
        return values[found[1]]

    return _PLACEHOLDER.sub(value, template)


def judged(
    judge: Judge,
    questions: Sequence[Row],
    answers: Mapping[str, Sequence[str]],
    others: Mapping[str, Sequence[str]],
    ask: Ask,
    connections: int,
) -> list[Row]:
    """Records of all questions, in their order.

    Args:
        judge: makes the requests.
        questions: what was answered.
        answers: by question, one text a turn.
        others: as ``answers``, to compare with; empty for a rating.
        ask: gives the reply to a request.
        connections: requests under way at once.

    Raises:
        BadUse: a question that is not answered, has no turns, or stands there twice.
    """
    requests = []
    keys = [str(question.get("question_id")) for question in questions]
    for key, question in zip(keys, questions, strict=True):
        turns = turns_of(question)
        if keys.count(key) > 1:
            raise BadUse(f"question {key}: stands there twice; give each its own question_id")
        own, other = answers.get(key, ()), others.get(key, ())
        if len(own) != len(turns) or (others and len(other) != len(turns)):
            raise BadUse(f"question {key}: not each of its {len(turns)} turns is answered")
        requests.append(judge.requests(question, own, other))
    with ThreadPoolExecutor(connections) as pool:
        replies = iter(list(pool.map(ask, [one for own in requests for one in own])))
    return [
        judge.record(question, [next(replies) for _ in own])
        for question, own in zip(questions, requests, strict=True)
    ]
