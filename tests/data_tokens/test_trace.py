"""Which documents lie in which steps, against looking at every window."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokens_helpers import job

from instella.canonical import write_jsonl
from instella.data.tokenizer import Encoder
from instella.data.trace import Training, documents_in, read_ledger, steps_of, summary
from instella.errors import VerificationError
from instella.recipe.settings import ChatData, Part, PretrainData
from instella.stages import tokens_chat, tokens_text
from instella.training.order import Cursor

WINDOW = 16
DIGITS = {number: f"{number:03d}" for number in range(200)}


@pytest.fixture
def training(tmp_path: Path, inputs: dict[str, Path]) -> Training:
    """A small training on documents that each repeat a number of their own."""
    for name, numbers in (("many", range(120)), ("few", range(120, 140))):
        (tmp_path / name).mkdir()
        rows = [{"text": f"{DIGITS[n]} " * (1 + n % 13)} for n in numbers]
        write_jsonl(tmp_path / name / "rows.jsonl", rows)
        inputs[f"source_{name}"] = tmp_path / name
    parts = (Part("many", "text_rows"), Part("few", "text_rows", repeat=2))
    data = PretrainData(sequence_length=WINDOW, parts=parts, max_tokens=4000, seed=1)
    run = job(tmp_path, "tokens", {"data": data}, inputs)
    tokens_text.run(run)
    windows = len(np.load(run.output / "tokens.npy")) // WINDOW
    # Two epochs and a bit of the third; each drops what fills no batch.
    steps = 2 * (windows // 6) + 3
    return Training(run.output, Cursor(windows, 6, 6198, epochs=3, max_steps=steps), WINDOW)


def names_in_windows(training: Training, step: int) -> dict[str, int]:
    """The numbers that stand in the step's windows, read off the tokens themselves.

    Each document starts behind an end of text; what a window begins with belongs to the
    document that the stream was in.
    """
    tokens = np.load(training.tokens / "tokens.npy")
    document = np.cumsum(tokens == 0) - (tokens == 0)
    windows = document.reshape(-1, WINDOW)
    found: dict[str, int] = {}
    for example in training.order.at(step - 1)[1]:
        for number, count in zip(*np.unique(windows[example], return_counts=True), strict=True):
            found[str(number)] = found.get(str(number), 0) + int(count)
    return found


def test_a_step_has_exactly_the_documents_of_its_windows(
    training: Training, learned: Encoder
) -> None:
    tokens = np.load(training.tokens / "tokens.npy")
    ledger = list(read_ledger(training.tokens))
    for number, entry in enumerate(ledger):
        # The brute-force view's numbering is the ledger's, and the text is the document's.
        text = learned.decode(tokens[entry["start"] : entry["end"]]).removesuffix("<|endoftext|>")
        row = int(entry["key"].split("#")[1]) - 1 + (120 if entry["source"] == "few" else 0)
        assert (DIGITS[row] + " ") * (1 + row % 13) == text or number == len(ledger) - 1
    for step in range(1, training.order.total_steps + 1):
        found = {
            (item.entry["source"], item.entry["key"]) for item in documents_in(training, step, step)
        }
        expected = {
            (ledger[int(number)]["source"], ledger[int(number)]["key"])
            for number in names_in_windows(training, step)
        }
        assert found == expected


def test_the_steps_of_a_document_are_those_that_have_it(training: Training) -> None:
    ledger = list(read_ledger(training.tokens))
    located = steps_of(training, ledger)
    steps = range(1, training.order.total_steps + 1)
    inside = {step: set(map(int, names_in_windows(training, step))) for step in steps}
    for number, item in enumerate(located):
        assert item.entry == ledger[number]
        assert item.steps == [step for step in steps if number in inside[step]]
    assert any(len(item.steps) > 2 for item in located)
    some = ledger[3:9:2]
    assert [item.steps for item in steps_of(training, some)] == [
        item.steps for item in located[3:9:2]
    ]


def test_the_summary_adds_up(training: Training) -> None:
    ledger = list(read_ledger(training.tokens))
    tokens: dict[str, int] = {}
    documents: dict[str, set[int]] = {}
    for step in range(1, training.order.total_steps + 1):
        for number, count in names_in_windows(training, step).items():
            source = ledger[int(number)]["source"]
            tokens[source] = tokens.get(source, 0) + count
            documents.setdefault(source, set()).add(int(number))
    found = summary(training)
    assert {name: seen.tokens for name, seen in found.items()} == tokens
    assert {name: seen.documents for name, seen in found.items()} == {
        name: len(numbers) for name, numbers in documents.items()
    }
    assert sum(tokens.values()) == training.order.total_steps * 6 * WINDOW
    assert found["many"].first == 1 and found["many"].last == training.order.total_steps


def test_a_range_of_steps_is_the_union(training: Training) -> None:
    single: dict[str, list[int]] = {}
    for step in (4, 5, 6):
        for item in documents_in(training, step, step):
            single.setdefault(f"{item.entry['source']} {item.entry['key']}", []).append(step)
    together = {
        f"{item.entry['source']} {item.entry['key']}": item.steps
        for item in documents_in(training, 4, 6)
    }
    assert together == single


def test_rows_are_examples(tmp_path: Path, inputs: dict[str, Path]) -> None:
    data = ChatData(sequence_length=96, parts=(Part("chats", "chat_rows", repeat=2),))
    run = job(tmp_path, "tokens_sft", {"data": data}, inputs)
    tokens_chat.run(run)
    rows = len(np.load(run.output / "input_ids.npy"))
    training = Training(run.output, Cursor(rows, 3, 1, epochs=2))
    for step in range(1, training.order.total_steps + 1):
        found: list[Any] = [item.entry["row"] for item in documents_in(training, step, step)]
        assert found == sorted(training.order.at(step - 1)[1].tolist())
    assert summary(training)["chats"].examples == 3 * training.order.total_steps


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    (tmp_path / "documents.jsonl").write_bytes(b'{"source":"a"}\n')
    with pytest.raises(VerificationError, match=r"documents\.jsonl, line 1: no entry"):
        list(read_ledger(tmp_path))
