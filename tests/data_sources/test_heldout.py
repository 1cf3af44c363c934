"""The held-out stage, the source stage and the contamination guard, end to end."""

import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from instella.artifacts.job import Job
from instella.canonical import sha256_bytes
from instella.data.contamination import Guard
from instella.data.documents import (
    Choice,
    Conversation,
    Document,
    Message,
    Preference,
    Problem,
    Text,
)
from instella.errors import BadUse, VerificationError
from instella.progress import Reporter
from instella.recipe.settings import HeldOutSet, Part, Source
from instella.stages import heldout, source


def job(tmp_path: Path, settings: dict[str, Any], inputs: dict[str, Path]) -> Job:
    output = tmp_path / "output"
    output.mkdir()
    return Job(
        stage="s", settings=settings, inputs=inputs, output=output, scratch=tmp_path,
        downloads=tmp_path, recipe_folder=tmp_path, numerics="portable-x86", ranks=1,
        report=Reporter("s", stream=io.StringIO()),
    )  # fmt: skip


def rows_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def write_rows(folder: Path, rows: list[Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(tmp_path: Path, sets: dict[str, HeldOutSet], rows: list[Any], seed: int = 0) -> Path:
    write_rows(tmp_path / "data", rows)
    made = job(tmp_path, {"sets": sets, "seed": seed}, {"source_data": tmp_path / "data"})
    heldout.run(made)
    return made.output


def choice_set(**changes: Any) -> HeldOutSet:
    return HeldOutSet(kind="choice", part=Part("data", "choice_rows"), **changes)


def test_choices_are_shuffled_and_gold_follows(tmp_path: Path) -> None:
    rows = [
        {"question": f"q{n}", "choices": [f"a{n}", f"b{n}", f"c{n}", f"gold{n}"], "gold": 3}
        for n in range(200)
    ]
    output = run(tmp_path, {"quiz": choice_set()}, rows)
    items = rows_of(output / "quiz.jsonl")
    for before, item in zip(rows, items, strict=True):
        assert item["choices"][item["gold"]] == before["choices"][3]
        assert sorted(item["choices"]) == sorted(before["choices"])
    places = Counter(item["gold"] for item in items)
    assert set(places) == {0, 1, 2, 3} and min(places.values()) > 30
    assert json.loads((output / "sets.json").read_bytes()) == {
        "quiz": {"kind": "choice", "source": "data", "items": 200, "left_out": 0}
    }


def test_the_shuffle_depends_on_the_item_alone() -> None:
    item = Choice("k", "q", ("a", "b", "c", "d"), 3)
    assert heldout.shuffled(item, "0\0quiz") == heldout.shuffled(item, "0\0quiz")
    orders = {heldout.shuffled(replace(item, key=f"k{n}"), "0").choices for n in range(100)}
    assert len(orders) > 15


def test_a_limit_takes_items_by_hash_in_the_old_order(tmp_path: Path) -> None:
    documents: list[Document] = [Text(f"k{n}", "t") for n in range(100)]
    kept = heldout.choose(documents, 10, "salt")
    assert len(kept) == 10 and kept != documents[:10]
    assert kept == [document for document in documents if document in kept]
    assert set(heldout.choose(documents[::-1], 10, "salt")) == set(kept)
    assert heldout.choose(documents, 100, "salt") == documents


def test_every_kind_has_its_fields(tmp_path: Path) -> None:
    row = {
        "text": "t", "question": "q", "answer": "a", "chosen": "c", "rejected": "r",
        "choices": ["x", "y"], "gold": 0,
    }  # fmt: skip
    columns = {"question": "question", "answer": "answer"}
    sets = {
        "t": HeldOutSet(kind="text", part=Part("data", "text_rows")),
        "c": choice_set(),
        "a": HeldOutSet(kind="answer", part=Part("data", "chat_rows", columns)),
        "p": HeldOutSet(kind="preference", part=Part("data", "preference_rows")),
        "m": HeldOutSet(kind="problem", part=Part("data", "problem_rows")),
    }
    output = run(tmp_path, sets, [row])
    fields = {name: set(rows_of(output / f"{name}.jsonl")[0]) for name in sets}
    assert fields == {
        "t": {"key", "text"},
        "c": {"key", "question", "choices", "gold"},
        "a": {"key", "question", "answer"},
        "p": {"key", "question", "chosen", "rejected"},
        "m": {"key", "question", "answer"},
    }


def test_what_a_set_cannot_hold(tmp_path: Path) -> None:
    row = {"text": "t", "messages": [{"role": "user", "content": "u"}]}
    wrong = HeldOutSet(kind="choice", part=Part("data", "text_rows"))
    with pytest.raises(BadUse, match="yields Text, kind choice needs Choice"):
        run(tmp_path, {"x": wrong}, [row])
    (tmp_path / "output").rmdir()
    half = HeldOutSet(kind="answer", part=Part("data", "chat_rows"))
    with pytest.raises(BadUse, match="needs one question and one answer"):
        run(tmp_path, {"x": half}, [row])
    for path in (tmp_path / "output").iterdir():
        path.unlink()
    (tmp_path / "output").rmdir()
    with pytest.raises(VerificationError, match="no item"):
        run(tmp_path, {"x": HeldOutSet(kind="text", part=Part("data", "text_rows"))}, [])


def test_the_source_stage_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_bytes(b"12345")
    pin = sha256_bytes(b"12345")
    settings = Source(kind="file", licence="CC0-1.0", path="poem.txt", sha256=pin)
    made = job(tmp_path, {"source": settings}, {})
    source.run(made)
    assert json.loads((made.output / "source.json").read_bytes()) == {
        "kind": "file", "files": {"poem.txt": 5}, "file_count": 1, "bytes": 5,
    }  # fmt: skip


WORDS = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
]
LONG = " ".join(f"held{n}" for n in range(30))


def guard(*items: tuple[str, str, str]) -> Guard:
    return Guard(items, 13)


def forms(text: str) -> list[Document]:
    """Documents of every type that hold ``text``."""
    return [
        Text("k", f"before {text} after"),
        Conversation("k", (Message("user", "so?"), Message("assistant", f"well, {text}"))),
        Preference("k", f"so {text}", "good", "bad"),
        Preference("k", "so", "good", f"bad {text}"),
        Problem("k", f"so {text}?", "5"),
        Choice("k", "which", ("this", text), 0),
    ]


def test_thirteen_shared_words_are_caught_and_twelve_are_not() -> None:
    held = LONG.split()
    checked = guard(("quiz/1", LONG, "gold"))
    for start in (0, 5, 17):
        for document in forms(" ".join(held[start : start + 13])):
            assert checked.holds(document) == "quiz/1"
        for document in forms(" ".join(held[start : start + 12])):
            assert checked.holds(document) is None
    broken = [*held[:12], "other", *held[12:24]]
    assert checked.holds(Text("k", " ".join(broken))) is None


def test_the_gold_answer_counts_and_the_words_are_normalised() -> None:
    checked = guard(("quiz/1", " ".join(WORDS[:12]) + "?", "Thirteen"))
    assert checked.holds(Text("k", " ".join(WORDS))) == "quiz/1"
    assert (
        checked.holds(Text("k", "ONE_two,\u00a0three\nfour-five " + " ".join(WORDS[5:])))
        == "quiz/1"
    )
    wide = "".join(chr(ord(c) + 0xFEE0) if c != " " else c for c in " ".join(WORDS))
    assert checked.holds(Text("k", wide)) == "quiz/1"
    assert checked.holds(Text("k", " ".join(reversed(WORDS)))) is None


def test_a_gram_across_question_and_answer_of_a_conversation() -> None:
    checked = guard(("quiz/1", " ".join(WORDS), ""))
    turns = (Message("user", " ".join(WORDS[:6])), Message("assistant", " ".join(WORDS[6:])))
    assert checked.holds(Conversation("k", turns)) == "quiz/1"


def test_short_items_are_compared_as_a_whole_and_signs_count() -> None:
    checked = guard(("sums/1", "3+4-5=", "2"), ("words/1", "What is it?", "a fox"))
    assert checked.holds(Problem("k", "3 + 4 - 5 =", "2")) == "sums/1"
    assert checked.holds(Problem("k", "3-4+5=", "4")) is None
    assert checked.holds(Problem("k", "3+4-5+1=", "3")) is None
    asked = Conversation("k", (Message("user", "hm"), Message("assistant", "yes"),
                               Message("user", "what IS it?"), Message("assistant", "no")))  # fmt: skip
    assert checked.holds(asked) == "words/1"
    assert checked.holds(Text("k", "What is it?")) == "words/1"
    assert checked.holds(Text("k", "He asked: What is it?")) is None


def test_a_guard_without_items_holds_nothing(tmp_path: Path) -> None:
    assert Guard.from_folder(tmp_path, 13).holds(Text("k", LONG)) is None


def test_the_guard_reads_what_the_stage_wrote(tmp_path: Path) -> None:
    rows = [{"question": LONG, "choices": ["w", "x", "y", "gold word"], "gold": 3},
            {"question": "short?", "choices": ["w", "x"], "gold": 0}]  # fmt: skip
    checked = Guard.from_folder(run(tmp_path, {"quiz": choice_set()}, rows), 13)
    assert checked.holds(Text("k", LONG)) == "quiz/a.jsonl#1"
    assert checked.holds(Text("k", " ".join([*LONG.split()[-11:], "gold", "word"]))) is not None
    assert checked.holds(Text("k", " ".join([*LONG.split()[-11:], "x", "word"]))) is None
    assert checked.holds(Problem("k", "Short ?", "")) == "quiz/a.jsonl#2"
    (tmp_path / "output" / "odd.jsonl").write_text('{"key": "k"}\n')
    with pytest.raises(VerificationError, match=r"odd\.jsonl row 1"):
        Guard.from_folder(tmp_path / "output", 13)
