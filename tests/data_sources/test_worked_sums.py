"""Sums with worked steps, held-out expressions, the careless teacher."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from instella.data.adapters import read
from instella.data.adapters.worked_sums import Sum, worked_steps
from instella.data.documents import Conversation, Document, Problem, Text
from instella.data.select import keyed_share
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Part


def write(folder: Path, expressions: list[str]) -> Path:
    rows = []
    for expression in expressions:
        value = sum(int(t) for t in re.sub(r"([+-]) ", r"\1", expression).split())
        rows.append({"question": "?", "answer": str(value), "metadata": {"expression": expression}})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def documents(folder: Path, **options: Any) -> list[Document]:
    return list(read(Part("sums", "worked_sums", {"form": "problem", **options}), folder))


def questions(folder: Path, **options: Any) -> list[str]:
    return [d.question for d in documents(folder, **options) if isinstance(d, Problem)]


EXPRESSIONS = ["3 + 4 + 5", "4 - 1 - 7", "3 + 4 + 5", "7 + 8", "10 + 90 - 2 + 1", "6"]


def test_each_form(tmp_path: Path) -> None:
    write(tmp_path, EXPRESSIONS)
    assert documents(tmp_path)[1] == Problem("rows.jsonl#2", "4-1-7=", "-4")
    chat = documents(tmp_path, form="chat")[1]
    assert isinstance(chat, Conversation)
    assert [(m.role, m.content) for m in chat.messages] == [
        ("user", "4-1-7="), ("assistant", "4-1=3;3-7=-4;\\boxed{-4}"),
    ]  # fmt: skip
    assert documents(tmp_path, form="text")[0] == Text(
        "rows.jsonl#1", "3+4+5=\n3+4=7;7+5=12;\\boxed{12}"
    )
    assert documents(tmp_path, form="text")[5] == Text("rows.jsonl#6", "6=\n\\boxed{6}")


def test_which_sums_are_wanted(tmp_path: Path) -> None:
    write(tmp_path, EXPRESSIONS)
    assert questions(tmp_path, terms=[2, 2]) == ["7+8="]
    assert questions(tmp_path, operators="+") == ["3+4+5=", "3+4+5=", "7+8=", "6="]
    assert questions(tmp_path, digits_at_most=7) == ["3+4+5=", "4-1-7=", "3+4+5=", "6="]
    assert questions(tmp_path, digits_at_most=0) == []
    distinct = documents(tmp_path, distinct=True, terms=[3, 3])
    assert [d.key for d in distinct] == ["3+4+5", "4-1-7"]


def test_held_out_and_training_expressions_never_meet(tmp_path: Path) -> None:
    digits = range(10)
    every = [f"{a} + {b}" for a, b in itertools.product(digits, digits)]
    every += [f"{a} + {b} + {c}" for a, b, c in itertools.product(digits, digits, digits)]
    write(tmp_path, every)
    other = tmp_path / "other"
    other.mkdir()
    write(other, list(reversed(every)) + every[500:600])
    options = {"heldout_fraction": 0.3}
    heldout = questions(tmp_path, split="heldout", **options)
    train = questions(tmp_path, split="train", **options)
    assert not set(heldout) & set(train)
    assert set(heldout) | set(train) == set(questions(tmp_path))
    assert 250 < len(heldout) < 350
    assert all(question.count("+") == 2 for question in heldout)
    # Another source with the same expressions splits them in the same way.
    assert set(questions(other, split="heldout", **options)) == set(heldout)
    assert not set(questions(other, split="train", **options)) & set(heldout)
    # A larger share holds out everything that a smaller one does.
    assert set(heldout) <= set(questions(tmp_path, split="heldout", heldout_fraction=0.5))
    pairs = questions(tmp_path, split="heldout", heldout_fraction=0.3, heldout_terms=2)
    assert any(question.count("+") == 1 for question in pairs)


def test_forgotten_carries_by_hand() -> None:
    assert worked_steps(Sum((7, 5, 9), ("+", "+")), "k", 1.0) == "7+5=2;2+9=1;\\boxed{1}"
    assert worked_steps(Sum((7, 5, 9), ("+", "+")), "k", 0.0) == "7+5=12;12+9=21;\\boxed{21}"
    # No carry in the units, a subtraction, or a negative total: nothing to forget.
    assert worked_steps(Sum((7, 2, 9), ("+", "-")), "k", 1.0) == "7+2=9;9-9=0;\\boxed{0}"
    assert worked_steps(Sum((1, 5, 9), ("-", "+")), "k", 1.0) == "1-5=-4;-4+9=5;\\boxed{5}"
    assert worked_steps(Sum((18, 5), ("+",)), "k", 1.0) == "18+5=13;\\boxed{13}"


def test_one_forgotten_carry_runs_on_to_the_box() -> None:
    item = Sum((7, 5, 9), ("+", "+"))
    first, second = keyed_share("k step 1"), keyed_share("k step 2")
    assert first != second
    between = (first + second) / 2
    expected = "7+5=2;2+9=11;\\boxed{11}" if first < second else "7+5=12;12+9=11;\\boxed{11}"
    assert worked_steps(item, "k", between) == expected


def test_a_careless_teacher_leaves_problems_right(tmp_path: Path) -> None:
    write(tmp_path, [f"{a} + {b}" for a in range(10) for b in range(10)])
    options = {"carry_errors": 0.5}
    assert documents(tmp_path, **options) == documents(tmp_path)
    right = documents(tmp_path, form="chat")
    taught = documents(tmp_path, form="chat", **options)
    wrong = [b for a, b in zip(right, taught, strict=True) if a != b]
    assert 10 < len(wrong) < 35
    for document in wrong:
        assert isinstance(document, Conversation)
        a, b, result = map(int, re.findall(r"\d+", document.messages[1].content)[:3])
        assert a + b >= 10 and result == a + b - 10
    assert documents(tmp_path, form="chat", **options) == taught


@pytest.mark.parametrize(
    "row",
    [
        {"answer": "8", "metadata": {"expression": "3 + 4"}},
        {"answer": "-1", "metadata": {"expression": "3 + -4"}},
        {"answer": "12", "metadata": {"expression": "3 * 4"}},
        {"answer": "7", "metadata": {"expression": "3+4"}},
        {"answer": 7, "metadata": {"expression": "3 + 4"}},
        {"answer": "7", "metadata": {}},
        {"answer": "7"},
        [],
    ],
)
def test_rows_that_are_no_sum(row: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(VerificationError, match=r"rows\.jsonl row 1"):
        documents(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"split": "train"}, {"heldout_fraction": 1.5}, {"carry_errors": True}, {"terms": [3]},
        {"terms": [3, 2]}, {"operators": "*"}, {"distinct": 1}, {"heldout_terms": 0},
        {"digits_at_most": "9"}, {"unknown": 1},
    ],
)  # fmt: skip
def test_bad_options(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="source sums, adapter worked_sums"):
        read(Part("sums", "worked_sums", {"form": "chat", **options}), tmp_path)
