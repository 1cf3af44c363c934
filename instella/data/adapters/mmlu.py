"""Adapter ``mmlu_auxiliary``: MMLU's training items as conversations.

As published (R: scripts/prepare_sft_data.py), each item gets one of eleven question forms
with its answer form, and its options in a shuffled order under the letters A to D; the
answer tells the letter alone. Ten forms begin with an instruction, one is bare. The
published wording is not free, so the forms' wording is ours. Form and order come from a
hash of the seed and the item's key, not from one generator over all items, so they depend
neither on the order of rows nor on other items; a text that stands twice among the options
keeps the right one's letter.

Options: ``files`` (patterns, default all row files), ``seed`` (default 96).
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from instella.data.adapters.keys import content_key
from instella.data.adapters.options import Options
from instella.data.adapters.rows import Row, read_rows
from instella.data.documents import Conversation, Message
from instella.errors import VerificationError
from instella.recipe.settings import Part

PUBLISHED_SEED = 96
LETTERS = "ABCD"
NESTED = "train"


@dataclass(frozen=True)
class Form:
    """What stands before the item, and the answer to it."""

    instruction: str
    answer: str


FORMS = (
    Form("Answer this multiple-choice question with a single letter.", "Answer: {letter}"),
    Form("One of the four options below is right. Which one?", "It is {letter}."),
    Form("Here is an exam question with four options. Pick one.", "My pick is {letter}."),
    Form("Name the option that fits the question.", "Option {letter} fits the question."),
    Form("Which of A, B, C and D is true?", "Option {letter} is true."),
    Form("Think about the question first, then tell which option holds.", "Option {letter} holds."),
    Form("Solve this test item.", "The solution is option {letter}."),
    Form("Only one of the four lines below the question is right.", "The right line is {letter}."),
    Form("Below are a question and four replies. Mark the right reply.", "I mark reply {letter}."),
    Form("Give the letter of the right reply.", "The letter is {letter}."),
    Form("", "{letter}."),
)


def read(part: Part, folder: Path) -> Iterator[Conversation]:
    """One ``Conversation`` a row; columns ``question``, ``choices`` (four texts) and
    ``answer`` (0 to 3), at the top or inside a column ``train``."""
    options = Options(part)
    files = options.texts("files", ("*",))
    seed = options.whole("seed", PUBLISHED_SEED)
    options.end()
    return _documents(folder, files, seed)


def _documents(folder: Path, files: tuple[str, ...], seed: int) -> Iterator[Conversation]:
    for row in read_rows(folder, files, ("question", "choices", "answer", NESTED)):
        prefix = f"{NESTED}." if NESTED in row.values else ""
        question, choices, gold = _item(row, prefix)
        key = content_key(question, choices, gold)
        yield conversation(key, question, choices, gold, seed)


def _item(row: Row, prefix: str) -> tuple[str, list[str], int]:
    question = row.text(f"{prefix}question")
    choices, gold = row.value(f"{prefix}choices"), row.value(f"{prefix}answer")
    if not isinstance(choices, list) or not all(isinstance(item, str) for item in choices):
        raise VerificationError(f"{row.key}: column {prefix}choices is not a list of texts")
    if len(choices) != len(LETTERS):
        raise VerificationError(
            f"{row.key}: column {prefix}choices has {len(choices)} texts, not 4"
        )
    if type(gold) is not int or not 0 <= gold < len(choices):
        raise VerificationError(f"{row.key}: column {prefix}answer: {gold!r} is not from 0 to 3")
    return question, choices, gold


def conversation(key: str, question: str, choices: list[str], gold: int, seed: int) -> Conversation:
    """The item under its form, with its options in their order.

    Args:
        key: of the item; decides with ``seed`` about form and order.
        question: of the item.
        choices: four texts.
        gold: index of the right one.
        seed: another one gives other forms and orders.
    """
    order = sorted(range(len(choices)), key=lambda index: _draw(seed, key, str(index)))
    form = FORMS[int.from_bytes(_draw(seed, key, "form")[:8], "big") % len(FORMS)]
    lines = [form.instruction] if form.instruction else []
    lines.append(f"Question: {question}")
    lines += [f"{LETTERS[place]}. {choices[index]}" for place, index in enumerate(order)]
    answer = form.answer.format(letter=LETTERS[order.index(gold)])
    return Conversation(key, (Message("user", "\n".join(lines)), Message("assistant", answer)))


def _draw(seed: int, key: str, what: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{key}\0{what}".encode()).digest()
