"""Held-out items in training documents: exact, near, and what neither rule catches."""

import json

import pytest

from instella.canonical import write_jsonl
from instella.data.documents import Conversation, Message, Preference, Problem, Text
from instella.errors import BadUse, VerificationError
from instella.evaluation.ours import read_overlap
from instella.evaluation.overlap import Found, HeldOut, counts

QUESTION = (
    "A baker sells forty loaves on Monday and half as many on Tuesday, how many loaves in all"
)
PASSAGE = "The river rises in the northern hills and runs past three old mills before the sea"
NOTHING = Found(frozenset(), frozenset())


@pytest.fixture
def held_out(tmp_path):
    write_jsonl(
        tmp_path / "sums.jsonl",
        [
            {"key": "baker", "question": QUESTION, "answer": "60"},
            {"key": "short", "question": "3+4-5", "answer": "2"},
        ],
    )
    write_jsonl(tmp_path / "texts.jsonl", [{"key": "river", "text": PASSAGE}])
    return HeldOut(tmp_path, 13)


def found(held_out, *documents):
    result = NOTHING
    for document in documents:
        result |= held_out.found_in(document)
    return set(result.exact), set(result.near)


def test_a_copy_is_exact_and_near(held_out):
    name = {"sums/baker"}
    assert found(held_out, Text("t", f"Once: {QUESTION.upper()}? Yes.")) == (name, name)
    assert found(held_out, Problem("p", QUESTION, "60")) == (name, name)


def test_a_changed_word_in_the_middle_is_near_only(held_out):
    """No thirteen words in a row are left, but 9 of 14 runs of five are."""
    text = QUESTION.replace("and", "plus")
    assert found(held_out, Text("t", text)) == (set(), {"sums/baker"})
    # Two changes leave 5 of 14.
    text = text.replace("Tuesday", "Friday")
    assert found(held_out, Text("t", text)) == (set(), set())


def test_half_of_the_runs_is_enough_and_less_is_not(held_out):
    """The first n words hold n - 4 of 14 runs."""
    words = QUESTION.split()
    assert found(held_out, Text("t", " ".join(words[:11])))[1] == {"sums/baker"}
    assert found(held_out, Text("t", " ".join(words[:10])))[1] == set()


def test_the_share_is_of_the_item_and_not_of_the_document(held_out):
    filler = " ".join(f"word{n}" for n in range(3000))
    text = f"{filler} {PASSAGE.replace('sea', 'lake')} {filler}"
    # All thirteen-grams of the passage but the last three stand there too.
    assert found(held_out, Text("t", text)) == ({"texts/river"}, {"texts/river"})
    assert found(held_out, Text("t", " ".join(PASSAGE.split()[:9]))) == (set(), set())


def test_an_item_that_is_cut_in_two_is_still_near(held_out):
    """Its runs of five may stand apart, in other turns of one conversation."""
    words = QUESTION.split()
    halves = (" ".join(words[:10]), " ".join(words[8:]))
    messages = tuple(
        Message(role, text) for role, text in zip(("user", "assistant"), halves, strict=True)
    )
    assert found(held_out, Conversation("c", messages))[1] == {"sums/baker"}
    assert found(held_out, Text("t", halves[0]), Text("u", halves[1])) == (set(), set())


def test_both_answers_of_a_pair_are_looked_at(held_out):
    pair = Preference("p", "Tell me of a river", "No.", PASSAGE)
    assert found(held_out, pair)[1] == {"texts/river"}


def test_short_items_are_told_apart(held_out):
    """Compared as a whole by the exact rule, and never near."""
    assert found(held_out, Problem("p", "3+4-5", "2")) == ({"sums/short"}, set())
    result = held_out.found_in(Problem("p", "3+4-5", "2"))
    assert counts(held_out, result) == {
        "sums": {"items": 2, "exact": 1, "near": 0, "short": 1},
        "texts": {"items": 1, "exact": 0, "near": 0, "short": 0},
    }


def test_a_row_without_a_question_is_refused(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", [{"key": "x", "question": 3, "answer": "1"}])
    with pytest.raises(VerificationError, match="has no key, question or text"):
        HeldOut(tmp_path, 13)


@pytest.mark.parametrize("value", [[], {"sft": 1}, {"sft": {"mmlu": {"items": 1}}}])
def test_an_overlap_of_another_form_is_refused(tmp_path, value):
    path = tmp_path / "overlap.json"
    path.write_text(json.dumps(value))
    with pytest.raises(BadUse, match="no overlap; make it with"):
        read_overlap(path)


def test_an_overlap_is_read(tmp_path):
    path = tmp_path / "overlap.json"
    value = {"sft": {"mmlu": {"items": 9, "exact": 0, "near": 1, "short": 0}}}
    path.write_text(json.dumps(value))
    assert read_overlap(path) == value
