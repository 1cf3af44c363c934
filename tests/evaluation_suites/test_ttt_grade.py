"""The grader: forms of an answer, the published loophole, and players without judgement."""

from fractions import Fraction

import pytest

from instella.evaluation.ttt.files import read_items
from instella.evaluation.ttt.games import GAMES
from instella.evaluation.ttt.generate import new_items
from instella.evaluation.ttt.grade import named_moves, ours, published, verdicts
from instella.rewards.grade import CORRECT, NO_ANSWER, WRONG


@pytest.mark.parametrize(
    ("gold", "answer", "by_ours", "by_published"),
    [
        ("E", "E", CORRECT, CORRECT),
        ("E", r"\text{E}", CORRECT, CORRECT),
        ("E", r"\mathbf{E}.", CORRECT, CORRECT),
        ("E", "point E", CORRECT, CORRECT),
        ("E", "F", WRONG, WRONG),
        ("E", "e", WRONG, WRONG),
        ("L, M", "M", CORRECT, CORRECT),
        ("L, M", "L, M", CORRECT, CORRECT),
        ("L, M", "LM", CORRECT, CORRECT),
        ("L, M", r"L \text{ or } M", CORRECT, CORRECT),
        # Hedging: the published rule takes one right letter among any.
        ("E", "E or F", WRONG, CORRECT),
        ("L, M", "L, M, N", WRONG, CORRECT),
        ("E", "ABCDEFGHI", WRONG, CORRECT),
        # Words with a capital.
        ("E", "Every point", WRONG, CORRECT),
        ("A", "Alice wins", WRONG, CORRECT),
        ("P", "Point E", WRONG, CORRECT),
        ("E", "", NO_ANSWER, NO_ANSWER),
        ("E", None, NO_ANSWER, NO_ANSWER),
        ("E", "5", WRONG, WRONG),
        ("E", "É", WRONG, WRONG),
    ],
)
def test_forms_of_an_answer(gold, answer, by_ours, by_published):
    assert ours(gold, answer) == by_ours
    assert published(gold, answer) == by_published


def test_named_moves():
    assert named_moves(r"\text{M}, L") == "LM"
    assert named_moves("place it at L") is None
    assert named_moves(r"\frac{1}{2}") == ""


def test_only_the_last_box_counts():
    responses = [r"\boxed{A} then \boxed{E}", r"\boxed{E} then \boxed{A", "E"]
    assert verdicts("E", responses) == [CORRECT, NO_ANSWER, NO_ANSWER]
    assert verdicts("E", [r"\boxed{AE}"], "published") == [CORRECT]


@pytest.fixture(scope="module", params=["dTTT", "cTTT", "sTTT"])
def items(request):
    game = GAMES[request.param]
    return game, new_items(game, 30, 1)


def rate(items, answer_of, rule):
    """Exact share of right answers of a player."""
    right = sum(
        verdicts(", ".join(item.right), [f"\\boxed{{{answer_of(item)}}}"], rule) == [CORRECT]
        for item in items
    )
    return Fraction(right, len(items))


def test_gold_is_always_right_and_silence_never(items):
    _, made = items
    for rule in ("ours", "published"):
        assert rate(made, lambda item: ", ".join(item.right), rule) == 1
        assert rate(made, lambda item: item.right[0], rule) == 1
        assert rate(made, lambda item: "", rule) == 0


def test_listing_every_letter_scores_1_by_the_published_rule_and_0_by_ours(items):
    game, made = items
    assert rate(made, lambda item: game.points, "published") == 1
    assert rate(made, lambda item: game.points, "ours") == 0


def test_a_constant_letter_scores_the_share_of_items_that_it_is_right_in(items):
    game, made = items
    for letter in game.points:
        share = Fraction(sum(letter in item.right for item in made), len(made))
        for rule in ("ours", "published"):
            assert rate(made, lambda item, letter=letter: letter, rule) == share


def test_a_random_letter_scores_the_mean_share_of_right_letters(items):
    """Exactly: the mean over all letters, each drawn equally often."""
    game, made = items
    expected = Fraction(sum(len(item.right) for item in made), len(made) * len(game.points))
    for rule in ("ours", "published"):
        rates = [rate(made, lambda item, one=letter: one, rule) for letter in game.points]
        assert sum(rates, Fraction(0)) / len(rates) == expected


def test_a_random_free_letter_scores_one_over_the_free_points(items):
    _, made = items
    for item in made:
        free = item.position.game.letters(item.position.free)
        judged = verdicts(", ".join(item.right), [f"\\boxed{{{one}}}" for one in free])
        assert judged.count(CORRECT) == len(item.right)


def test_hedging_never_gains_by_ours(items):
    """A pair of letters is right only if each of them is."""
    game, made = items
    for item in made[:8]:
        gold = ", ".join(item.right)
        for first in game.points:
            for second in game.points:
                pair = ours(gold, f"{first}, {second}") == CORRECT
                assert pair == (first in item.right and second in item.right)


@pytest.mark.parametrize("name", ["oTTT", "sTTT"])
def test_players_without_judgement_on_the_published_items(eval_folder, name):
    """../shared: gold 1, each constant letter its share, everything 1 against 0."""
    game = GAMES[name]
    golds = [
        gold for _, gold in read_items(eval_folder / f"ttt_bench_{name.lower()}.parquet", game)
    ]

    def right(answer_of, rule):
        return sum(verdicts(g, [f"\\boxed{{{answer_of(g)}}}"], rule) == [CORRECT] for g in golds)

    for rule in ("ours", "published"):
        assert right(lambda gold: gold, rule) == len(golds)
        for letter in game.points:
            share = sum(letter in gold for gold in golds)
            assert right(lambda gold, one=letter: one, rule) == share
    assert right(lambda gold: game.points, "published") == len(golds)
    assert right(lambda gold: game.points, "ours") == 0
