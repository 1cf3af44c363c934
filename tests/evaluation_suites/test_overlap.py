"""Held-out items in training documents: exact, near, and what neither rule catches."""

import json

import numpy as np
import pytest

from instella.canonical import write_jsonl
from instella.data.documents import Conversation, Message, Preference, Problem, Text
from instella.errors import BadUse, VerificationError
from instella.evaluation import near
from instella.evaluation.near import NearIndex, runs
from instella.evaluation.ours import read_overlap
from instella.evaluation.overlap import HeldOut, counts

QUESTION = (
    "A baker sells forty loaves on Monday and half as many on Tuesday, how many loaves in all"
)
# Few words, so that runs come again; signs that split, join, or change under NFKC.
WORDS = ("a", "b", "A", "c3", "\u00e9", "e\u0301", "\ufb01n", "fin", "x_y", "-", "\u4e00", "\u0661")
PASSAGE = "The river rises in the northern hills and runs past three old mills before the sea"


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
    result = held_out.found_in(documents)
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
    result = held_out.found_in([Problem("p", "3+4-5", "2")])
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


def by_definition(items, text, words, share):
    """Numbers of the items that a text nearly holds, by sets of runs alone."""
    held = set(runs(text, words))
    own = [set(runs(item, words)) for item in items]
    return {n for n, found in enumerate(own) if found and len(found & held) >= share * len(found)}


@pytest.mark.parametrize("words", [1, 3, 5])
def test_random_texts_are_found_as_by_definition(words):
    generator = np.random.Generator(np.random.PCG64(words))

    def text(most):
        drawn = generator.integers(0, len(WORDS), generator.integers(0, most))
        return " ".join(WORDS[n] for n in drawn)

    items = [text(14) for _ in range(150)]
    index = NearIndex(items, words, 0.5)
    assert index.sizes.tolist() == [len(set(runs(item, words))) for item in items]
    hits = 0
    for _ in range(150):
        document = text(120)
        wanted = by_definition(items, document, words, 0.5)
        assert index.found_in(document, set()) == wanted
        known = set(list(wanted)[::2])
        assert index.found_in(document, known) == wanted - known
        hits += len(wanted)
    assert hits > 50


def test_runs_with_one_fingerprint_are_told_apart(monkeypatch):
    """All fingerprints are made equal, so that only the words decide."""
    monkeypatch.setattr(
        near, "fingerprints", lambda text, n: (np.full(len(list(runs(text, n))), 7, np.uint64), 0)
    )
    index = NearIndex([QUESTION, PASSAGE, "too short"], 5, 0.01)
    assert index.found_in(PASSAGE, set()) == {1}
    assert index.found_in("a b c d e f g", set()) == set()


def test_no_items_are_never_found():
    assert NearIndex([], 5, 0.5).found_in(QUESTION, set()) == set()
