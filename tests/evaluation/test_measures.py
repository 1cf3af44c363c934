"""Likelihood measures on networks whose scores are known beforehand."""

import math

import pytest
from evaluation_helpers import ITEMS, ROWS, Constant, Random, Table, Writer, choice, real_network

from instella.data.chat import answer_ids, prompt_ids
from instella.evaluation.measures import (
    MEASURES,
    answer_loss,
    choice_accuracy,
    preference_accuracy,
    text_loss,
)
from instella.recipe.check_evaluation import METRICS

SCORINGS = METRICS["choice"]


def ratio(records, metric):
    pairs = [record["figures"][metric] for record in records]
    return sum(pair[0] for pair in pairs) / sum(pair[1] for pair in pairs)


@pytest.fixture
def question(bench):
    """Id that starts a question, and so tells it from a bare ``Answer:``."""
    return bench.encoder.encode("Q")[0]


def ids_of(bench, probabilities):
    return {bench.encoder.encode(text)[0]: value for text, value in probabilities.items()}


@pytest.mark.parametrize("kind", METRICS)
def test_metrics_that_a_recipe_may_name_are_those_recorded(bench, kind):
    network = real_network()
    records = MEASURES[kind](bench.subject(network, kind, max_new_tokens=3), ITEMS[kind])
    assert [record["key"] for record in records] == [item["key"] for item in ITEMS[kind]]
    for record in records:
        assert set(record["figures"]) == set(METRICS[kind])


def test_every_kind_has_a_measure():
    assert set(MEASURES) == set(METRICS)


@pytest.mark.parametrize("measure", [text_loss, answer_loss])
def test_loss_of_a_uniform_network_is_log_of_the_vocabulary(bench, measure):
    kind = "text" if measure is text_loss else "answer"
    records = measure(bench.subject(Constant(), kind), ITEMS[kind])
    assert ratio(records, "loss") == pytest.approx(math.log(ROWS), rel=1e-6)


def test_tokens_counted_are_those_of_the_text_and_its_end(bench):
    item = {"key": "a", "text": "0123456789"}
    (whole,) = text_loss(bench.subject(Constant(), "text", 32), [item])
    assert whole["figures"]["loss"][1] == 11
    (cut,) = text_loss(bench.subject(Constant(), "text", 8), [item])
    assert cut["figures"]["loss"][1] == 7


def test_tokens_counted_are_those_of_the_answer_and_its_end(bench):
    (record,) = answer_loss(bench.subject(Constant(), "answer"), ITEMS["answer"][:1])
    assert record["figures"]["loss"][1] == len("it is 0") + 1


def test_loss_is_that_of_the_given_distribution(bench, question):
    table = Table(question, {}, ids_of(bench, {"a": 0.5, "b": 0.125}))
    end = -math.log((1 - 0.625) / (ROWS - 2))
    (record,) = text_loss(bench.subject(table, "text"), [{"key": "k", "text": "aab"}])
    assert record["figures"]["loss"] == [pytest.approx(5 * math.log(2) + end, rel=1e-6), 4.0]


def test_constant_network_has_no_choice_right(bench):
    items = [choice(f"c{n}", ["abc", "def", "ghi"], n) for n in range(3)]
    records = choice_accuracy(bench.subject(Constant(), "choice"), items)
    assert {name: ratio(records, name) for name in SCORINGS} == dict.fromkeys(SCORINGS, 0.0)


def test_constant_network_ties_choices_of_other_lengths_a_token(bench):
    items = [choice(f"c{n}", ["a", "bcd", "efghi"], n) for n in range(3)]
    records = choice_accuracy(bench.subject(Constant(), "choice"), items)
    assert ratio(records, "acc_per_token") == ratio(records, "acc_uncond") == 0.0
    assert [record["figures"]["acc_raw"][0] for record in records] == [1.0, 0.0, 0.0]


def test_network_that_knows_the_gold_has_every_choice_right(bench, question):
    table = Table(question, ids_of(bench, {"g": 0.9}), ids_of(bench, {"w": 0.9}))
    golds = [[n == gold for n in range(4)] for gold in range(4)]
    items = [
        choice(f"c{gold}", ["ggg" if right else "www" for right in row], gold)
        for gold, row in enumerate(golds)
    ]
    records = choice_accuracy(bench.subject(table, "choice"), items)
    assert {name: ratio(records, name) for name in SCORINGS} == dict.fromkeys(SCORINGS, 1.0)


def test_random_network_guesses(bench):
    items = [choice(f"c{n}", ["ab", "cd", "ef", "gh"], n % 4) for n in range(160)]
    records = choice_accuracy(bench.subject(Random(), "choice", 32), items)
    for name in SCORINGS:
        # Four standard deviations of a share of 1/4 in 160.
        assert ratio(records, name) == pytest.approx(0.25, abs=0.137)


def test_four_scorings_by_hand(bench, question):
    # Powers of two, so a score is a whole number of bits: with the blank before it, "aa"
    # has 1 + 3 + 3 bits after a question and 1 + 2 + 2 after "Answer:" alone.
    after = {" ": 2.0**-1, "a": 2.0**-3, "b": 2.0**-2, "c": 2.0**-5}
    alone = {" ": 2.0**-1, "a": 2.0**-2, "b": 2.0**-4, "c": 2.0**-10}
    table = Table(question, ids_of(bench, after), ids_of(bench, alone))
    items = [
        choice("one", ["a", "bb"], 0),
        choice("two", ["a", "aa"], 1),
        choice("three", ["a", "c"], 1),
    ]
    expected = {
        "one": {
            "acc_raw": ([-4, -5], 1),
            "acc_per_token": ([-2, -5 / 3], 0),
            "acc_per_character": ([-4, -2.5], 0),
            "acc_uncond": ([-1, 4], 0),
        },
        "two": {
            "acc_raw": ([-4, -7], 0),
            "acc_per_token": ([-2, -7 / 3], 0),
            "acc_per_character": ([-4, -3.5], 1),
            "acc_uncond": ([-1, -2], 0),
        },
        "three": {
            "acc_raw": ([-4, -6], 0),
            "acc_per_token": ([-2, -3], 0),
            "acc_per_character": ([-4, -6], 0),
            "acc_uncond": ([-1, 5], 1),
        },
    }
    for record in choice_accuracy(bench.subject(table, "choice"), items):
        for name, (scores, right) in expected[record["key"]].items():
            found = [score / math.log(2) for score in record["scores"][name]]
            assert found == pytest.approx(scores, abs=1e-5), (record["key"], name)
            assert record["figures"][name] == [right, 1.0], (record["key"], name)


def test_figures_follow_from_the_evidence_of_a_choice(bench):
    items = [choice(f"c{n}", ["ab", "c", "efg"], n % 3, f"q{n}") for n in range(12)]
    records = choice_accuracy(bench.subject(real_network(), "choice"), items)
    seen = set()
    for record, item in zip(records, items, strict=True):
        assert record["gold"] == item["gold"]
        for name in SCORINGS:
            scores = record["scores"][name]
            best = max(range(3), key=scores.__getitem__)
            assert record["figures"][name] == [float(best == item["gold"]), 1.0]
            seen.add(record["figures"][name][0])
    assert seen == {0.0, 1.0}


def preference(key, chosen, rejected):
    return {"key": key, "question": "q", "chosen": chosen, "rejected": rejected}


def test_a_tied_preference_is_wrong(bench):
    items = [preference("same", "ab", "cd"), preference("longer", "abcdefg", "h")]
    for record in preference_accuracy(bench.subject(Constant(), "preference"), items):
        assert record["figures"] == {"accuracy": [0.0, 1.0], "margin": [0.0, 1.0]}


def test_preference_by_hand(bench, question):
    table = Table(question, {}, {0: 0.25, **ids_of(bench, {"a": 0.25, "b": 0.125})})
    items = [preference("right", "aa", "bb"), preference("wrong", "b", "aaa")]
    right, wrong = preference_accuracy(bench.subject(table, "preference"), items)
    bit = math.log(2)
    assert right["chosen"] == pytest.approx(-2 * bit, rel=1e-6)
    assert right["rejected"] == pytest.approx(-8 / 3 * bit, rel=1e-6)
    assert right["figures"]["accuracy"] == [1.0, 1.0]
    assert right["figures"]["margin"] == [right["chosen"] - right["rejected"], 1.0]
    assert wrong["figures"]["accuracy"] == [0.0, 1.0]
    assert wrong["figures"]["margin"][0] == pytest.approx(-0.5 * bit, rel=1e-5)


def test_items_of_one_question_are_one_cluster(bench):
    items = [preference("a", "x", "y"), preference("b", "x", "z")]
    other = {**preference("c", "x", "y"), "question": "another"}
    records = preference_accuracy(bench.subject(Constant(), "preference"), [*items, other])
    first, second, third = (record["cluster"] for record in records)
    assert first == second != third
    texts = text_loss(bench.subject(Constant(), "text"), ITEMS["text"])
    assert [record["cluster"] for record in texts] == [item["key"] for item in ITEMS["text"]]


def longest(bench, kind):
    """Tokens that the first item needs."""
    encoder, item = bench.encoder, ITEMS[kind][0]
    if kind == "choice":
        return 1 + len("Question: which 0\nAnswer: one")
    size = len(prompt_ids(item["question"], encoder))
    if kind == "problem":
        return size
    sides = ("answer",) if kind == "answer" else ("chosen", "rejected")
    return size + max(len(answer_ids(item[side], encoder)) for side in sides)


@pytest.mark.parametrize("kind", ["answer", "preference", "choice", "problem"])
def test_an_item_is_dropped_when_it_passes_the_length(bench, kind):
    network = Writer([0]) if kind == "problem" else Constant()
    long = {**ITEMS[kind][1], "question": ITEMS[kind][1]["question"] + "!"}
    items, length = [ITEMS[kind][0], long, ITEMS[kind][2]], longest(bench, kind)
    for size, kept in ((length + 1, [0, 1, 2]), (length, [0, 2]), (length - 1, [])):
        subject = bench.subject(network, kind, size, max_new_tokens=2)
        found = [record["key"] for record in MEASURES[kind](subject, items)]
        assert found == [items[n]["key"] for n in kept], size


def test_records_are_the_same_for_other_neighbours(bench):
    subject = bench.subject(real_network(), "choice")
    items = [choice(f"c{n}", ["ab", "c", "efg"], n % 3, f"q{n}") for n in range(9)]
    whole = choice_accuracy(subject, items)
    assert choice_accuracy(subject, items[::-1]) == whole[::-1]
    assert choice_accuracy(subject, items[4:5]) == whole[4:5]


def test_a_choice_item_with_an_empty_choice_is_dropped(bench):
    items = [choice("empty", ["a", ""], 0), choice("whole", ["a", "b"], 0)]
    records = choice_accuracy(bench.subject(Constant(), "choice"), items)
    assert [record["key"] for record in records] == ["whole"]
