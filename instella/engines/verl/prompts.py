"""A stage's prompts as the parquet files that verl reads.

The training file holds the rows of all steps in the order in which the kit's own engine takes
them. verl asks with a chat template and the text; a prompt is written only when its template
gives the very ids that the recipe's tokens stage made.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instella.canonical import read_jsonl
from instella.data.chat import role_tag, with_suffix
from instella.data.tokenizer import END_OF_TEXT, Encoder
from instella.errors import VerificationError
from instella.recipe.settings import Policy
from instella.training.order import Cursor

SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [("index", pa.int64()), ("key", pa.string()), ("step", pa.int64())],
            ),
        ),
    ]
)
# Before and after the question in what a prompt's ids stand for.
BEFORE = END_OF_TEXT + role_tag("user")
AFTER = "\n" + role_tag("assistant")
ROWS_AT_ONCE = 8192

Template = Callable[[list[dict[str, str]]], list[int]]


@dataclass(frozen=True)
class Question:
    """One prompt as verl asks it."""

    source: str
    key: str
    content: str
    answer: str


def template_of(folder: Path) -> Template:
    """What the tokenizer of a checkpoint makes of a conversation, as verl calls it."""
    # Takes seconds to load, which no other command needs.
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)

    def ids(messages: list[dict[str, str]]) -> list[int]:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    return ids


def read_questions(tokens: Path, encoder: Encoder, template: Template) -> list[Question]:
    """The prompts of a tokens stage, in its order.

    Args:
        tokens: folder with ``prompts.jsonl`` and ``documents.jsonl``.
        encoder: of the checkpoint that the prompts are for.
        template: of the same.

    Raises:
        VerificationError: a prompt that verl would ask in other ids, or one without answer.
    """
    prompts = read_jsonl(tokens / "prompts.jsonl")
    documents = read_jsonl(tokens / "documents.jsonl")
    if [item["key"] for item in prompts] != [item["key"] for item in documents]:
        raise VerificationError(f"{tokens}: prompts and documents are not of the same rows")
    return [
        _question(tokens / "prompts.jsonl", prompt, document["source"], encoder, template)
        for prompt, document in zip(prompts, documents, strict=True)
    ]


def _question(
    path: Path, prompt: Mapping[str, Any], source: str, encoder: Encoder, template: Template
) -> Question:
    text = encoder.decode(prompt["ids"])
    if not text.startswith(BEFORE) or not text.endswith(AFTER):
        raise VerificationError(f"{path}: {prompt['key']}: its ids are no prompt of one user turn")
    content = text[len(BEFORE) : -len(AFTER)]
    if template([{"role": "user", "content": content}]) != list(prompt["ids"]):
        raise VerificationError(
            f"{path}: {prompt['key']}: the chat template gives other ids than the tokens stage "
            "made, so verl would ask another question"
        )
    if not prompt["answer"].strip():
        raise VerificationError(f"{path}: {prompt['key']}: no answer to grade by")
    return Question(source, prompt["key"], content, prompt["answer"])


def order_of(chosen: Policy, count: int) -> Cursor:
    """The order of a stage's prompts, as ``instella.stages.policy`` makes it."""
    training = chosen.training
    return Cursor(
        count, chosen.prompts_per_step, training.seed, training.epochs, training.max_steps
    )


def write_training(path: Path, questions: Sequence[Question], order: Cursor) -> int:
    """Write the rows of all steps; returns their number.

    ``extra_info.index`` is the row, another one each time a question returns.
    """

    def rows() -> Iterator[dict[str, Any]]:
        index = 0
        for step in range(order.total_steps):
            for number in order.at(step)[1].tolist():
                yield _row(questions[number], index, step + 1)
                index += 1

    return _write(path, rows())


def write_validation(
    path: Path, sets: Mapping[str, Sequence[Mapping[str, Any]]], suffix: str
) -> int:
    """Write held-out problems; returns their number.

    Args:
        path: the file to write.
        sets: name of the set to its items, with key, question and answer.
        suffix: added to each question.
    """
    questions = (
        Question(name, item["key"], with_suffix(item["question"], suffix), item["answer"])
        for name, items in sets.items()
        for item in items
    )
    return _write(path, (_row(question, index, 0) for index, question in enumerate(questions)))


def _row(question: Question, index: int, step: int) -> dict[str, Any]:
    return {
        "data_source": question.source,
        "prompt": [{"role": "user", "content": question.content}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": question.answer},
        "extra_info": {"index": index, "key": question.key, "step": step},
    }


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    count = 0
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        waiting: list[dict[str, Any]] = []
        for row in rows:
            waiting.append(row)
            count += 1
            if len(waiting) == ROWS_AT_ONCE:
                writer.write_table(pa.Table.from_pylist(waiting, SCHEMA))
                waiting = []
        writer.write_table(pa.Table.from_pylist(waiting, SCHEMA))
    return count
