"""MMLU's training items under their eleven forms."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from instella.data.adapters import read
from instella.data.adapters.mmlu import FORMS, LETTERS
from instella.data.documents import Conversation
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Part

from .samples import write

FILE = "auxiliary_train/train-00000-of-00001.parquet"


def item(number: int) -> dict[str, Any]:
    choices = [f"choice {number}-{n}" for n in range(4)]
    return {"question": f"Item {number}?", "choices": choices, "answer": number % 4, "subject": ""}


def conversations(folder: Path, **options: Any) -> list[Conversation]:
    documents = list(read(Part("s", "mmlu_auxiliary", options or None), folder))
    assert all(isinstance(document, Conversation) for document in documents)
    return documents  # type: ignore[return-value]


def test_every_form_and_every_place_is_used_and_the_letter_is_right(tmp_path: Path) -> None:
    write(tmp_path, FILE, [{"train": item(n)} for n in range(600)])
    forms: Counter[str] = Counter()
    places: Counter[str] = Counter()
    for number, conversation in enumerate(conversations(tmp_path)):
        asked, answered = conversation.messages
        assert (asked.role, answered.role) == ("user", "assistant")
        head, *lines = asked.content.split(f"Question: Item {number}?\n")
        options = dict(line.split(". ") for line in lines[0].split("\n"))
        assert sorted(options) == list(LETTERS)
        assert sorted(options.values()) == item(number)["choices"]
        form = next(f for f in FORMS if head == (f"{f.instruction}\n" if f.instruction else ""))
        right = next(k for k, v in options.items() if v == f"choice {number}-{number % 4}")
        assert answered.content == form.answer.format(letter=right)
        forms[form.instruction] += 1
        places[right] += 1
    assert len(FORMS) == len(forms) == 11
    assert min(forms.values()) > 30  # 55 expected
    assert min(places.values()) > 110  # 150 expected


def test_an_item_does_not_depend_on_the_others(tmp_path: Path) -> None:
    write(tmp_path / "a", FILE, [{"train": item(n)} for n in range(20)])
    write(tmp_path / "b", "x.jsonl", [item(n) for n in reversed(range(5, 20))])
    assert conversations(tmp_path / "b") == conversations(tmp_path / "a")[:4:-1]


def test_another_seed_keeps_keys_and_changes_forms(tmp_path: Path) -> None:
    write(tmp_path, FILE, [{"train": item(n)} for n in range(20)])
    first, same = conversations(tmp_path), conversations(tmp_path, seed=96)
    other = conversations(tmp_path, seed=97)
    assert first == same != other
    assert [document.key for document in first] == [document.key for document in other]
    with pytest.raises(BadUse, match="option seed"):
        conversations(tmp_path, seed="96")


def test_equal_options_keep_the_right_ones_letter(tmp_path: Path) -> None:
    row = {"question": "?", "choices": ["same", "same", "same", "same"], "answer": 2}
    write(tmp_path, "a.jsonl", [row])
    (conversation,) = conversations(tmp_path)
    assert any(letter in conversation.messages[1].content for letter in LETTERS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"choices": ["a", "b", "c"]}, "choices has 3 texts, not 4"),
        ({"choices": ["a", "b", "c", 4]}, "choices is not a list of texts"),
        ({"choices": []}, "choices has 0 texts"),
        ({"choices": None}, "choices is missing or null"),
        ({"answer": 4}, "answer: 4 is not from 0 to 3"),
        ({"answer": True}, "answer: True is not"),
        ({"answer": "A"}, "answer: 'A' is not"),
        ({"answer": None}, "answer is missing or null"),
        ({"question": 5}, "question is int, need a text"),
    ],
)
@pytest.mark.parametrize("nested", [True, False])
def test_an_item_of_another_shape(
    change: dict[str, Any], message: str, nested: bool, tmp_path: Path
) -> None:
    rows = [item(0), item(1) | change]
    write(tmp_path, "a.jsonl", [{"train": row} for row in rows] if nested else rows)
    column = r"a\.jsonl#2: column " + (r"train\." if nested else "")
    with pytest.raises(VerificationError, match=column + message):
        conversations(tmp_path)
