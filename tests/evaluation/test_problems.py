"""Solved problems: stand-ins that write a given answer, and a random network."""

import pytest
from evaluation_helpers import Writer, real_network

from instella.evaluation.measures import solved_problems
from instella.rewards.extract import last_boxed
from instella.rewards.grade import Grader

END = 0
ITEMS = [{"key": f"m{n}", "question": f"{n}+1", "answer": str(n + 1)} for n in range(3)]


def measured(bench, text, *, end=True, items=ITEMS, length=64, suffix="", **changes):
    writer = Writer([*bench.encoder.encode(text), *([END] if end else [])])
    options = {"samples": 3, "max_new_tokens": 16, **changes}
    return solved_problems(bench.subject(writer, "problem", length, suffix, **options), items)


def figures(records, metric):
    return [record["figures"][metric] for record in records]


def test_right_answer_solves_its_item_and_no_other(bench):
    records = measured(bench, "so \\boxed{2}")
    assert figures(records, "pass@1") == [[0.0, 1.0], [1.0, 1.0], [0.0, 1.0]]
    assert figures(records, "boxed_and_ended") == [[1.0, 1.0]] * 3
    for record in records:
        assert record["samples"] == ["so \\boxed{2}"] * 3
    assert [record["verdicts"][0] for record in records] == ["wrong", "correct", "wrong"]


def test_answer_that_does_not_end_is_not_boxed_and_ended(bench):
    (record,) = measured(bench, "\\boxed{2} ", end=False, items=ITEMS[1:2])
    assert record["figures"] == {"pass@1": [1.0, 1.0], "boxed_and_ended": [0.0, 1.0]}
    assert record["samples"] == ["\\boxed{2}" + " " * 7] * 3


@pytest.mark.parametrize("text", ["2", "\\boxed{2", "\\boxed{1} or \\boxed{2"])
def test_answer_without_a_closed_box_counts_for_nothing(bench, text):
    (record,) = measured(bench, text, items=ITEMS[1:2], max_new_tokens=32)
    assert record["figures"] == {"pass@1": [0.0, 1.0], "boxed_and_ended": [0.0, 1.0]}
    assert record["verdicts"] == ["no answer"] * 3


def test_the_suffix_is_part_of_the_prompt(bench):
    # <|user|> and <|assistant|> with their newlines, end of text, and "0+1" with its own.
    bare = 9 + 14 + 1 + 4
    assert len(measured(bench, "\\boxed{1}", length=bare)) == 3
    assert measured(bench, "\\boxed{1}", length=bare + 3, suffix="Box") == []
    assert len(measured(bench, "\\boxed{1}", length=bare + 4, suffix="Box")) == 3


@pytest.fixture(scope="module")
def sampled(bench):
    network = real_network()

    def sample(items=ITEMS, seed=0):
        options = {"samples": 4, "max_new_tokens": 6, "temperature": 1.0, "top_p": 1.0}
        subject = bench.subject(network, "problem", 40, seed=seed, **options)
        return solved_problems(subject, items)

    return sample


def test_samples_depend_on_seed_and_key_only(sampled):
    whole = sampled()
    assert sampled(ITEMS[::-1]) == whole[::-1]
    assert sampled(ITEMS[1:2]) == whole[1:2]
    dropped = {"key": "long", "question": "9" * 40, "answer": "9"}
    assert sampled([dropped, *ITEMS]) == whole
    assert sampled(seed=1) != whole
    assert len({text for record in whole for text in record["samples"]}) == 12


def test_verdicts_follow_from_the_samples(bench):
    for record, item in zip(measured(bench, "x \\boxed{3}"), ITEMS, strict=True):
        answers = [(item["answer"], last_boxed(text)) for text in record["samples"]]
        with Grader() as grader:
            again = [verdict.label for verdict in grader.verdicts(answers)]
        assert record["verdicts"] == again
        share = again.count("correct") / len(again)
        assert record["figures"]["pass@1"] == [share, 1.0]
