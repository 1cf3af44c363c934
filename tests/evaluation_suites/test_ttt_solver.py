"""The rule and full search: by hand, against each other, and against the published gold."""

from collections import Counter

import numpy as np
import pytest

from instella.errors import BadUse
from instella.evaluation.ttt.files import read_items
from instella.evaluation.ttt.games import GAMES
from instella.evaluation.ttt.grade import right_moves
from instella.evaluation.ttt.positions import Position, checked
from instella.evaluation.ttt.solver import Solution, by_minimax, by_rule, without_search

# Items of oTTT whose gold is part of the draw-keeping moves: moves -> gold.
EXCEPTIONS = {"BAEH": "G", "ABCGH": "I", "ABDGH": "E", "ABFIH": "D", "BADF": "I"}


@pytest.mark.parametrize(
    ("name", "moves", "solution"),
    [
        # Two ways to win at once: A, B towards C, and A, D towards G.
        ("oTTT", "AEBIDH", Solution("CG", "win")),
        ("oTTT", "AEC", Solution("B", "block")),
        # A win goes before a block.
        ("oTTT", "ADBE", Solution("C", "win")),
        ("oTTT", "ABEI", Solution("DG", "fork")),
        # The shared column belongs to both grids.
        ("dTTT", "CAFB", Solution("I", "win")),
        ("dTTT", "KAJ", Solution("C", "block")),
        ("cTTT", "BACEF", Solution("G", "block")),
        # B, C, F: the shared face is one sticker short.
        ("cTTT", "BACEFH", Solution("G", "win")),
        ("sTTT", "AYBXF", Solution("G", "block")),
        # Three of the slanted square B, F, H, L.
        ("sTTT", "BYFXHD", Solution("L", "win")),
    ],
)
def test_by_hand(name, moves, solution):
    assert by_rule(checked(GAMES[name], moves, "here")) == solution


def test_minimax_wins_fast_loses_slowly_and_draws():
    game = GAMES["oTTT"]
    # C wins at once; other moves win later.
    assert by_minimax(Position(game, "ADBE")) == ("C", "win")
    # Only the centre answers a corner.
    assert by_minimax(Position(game, "A")) == ("E", "draw")
    # Alice threatens G and has a second threat in store: the block only delays the loss.
    assert by_minimax(checked(game, "ABD", "here")) == ("G", "loss")
    assert by_minimax(checked(game, "ABDGE", "here"))[1] == "loss"


def test_two_threats_cannot_be_blocked():
    # Alice holds A, C, G; Bob has F and I and no threat: D, B and E are all wanted.
    position = checked(GAMES["oTTT"], "AFCIG", "here")
    assert without_search(position) is None
    moves, outcome = by_minimax(position)
    assert outcome == "loss" and set(moves) == set("BDEH")


@pytest.mark.parametrize(("name", "shown"), [("oTTT", 3), ("dTTT", 6), ("cTTT", 5)])
def test_the_steps_of_the_rule_are_minimax_cut_short(name, shown):
    """On 120 drawn positions of each game, wherever a step applies."""
    game = GAMES[name]
    generator = np.random.Generator(np.random.PCG64(0))
    kinds: Counter[str] = Counter()
    while sum(kinds.values()) < 120:
        length = shown + int(generator.integers(2)) + (name != "oTTT")
        order = generator.permutation(len(game.points))[:length]
        position = Position(game, "".join(game.points[index] for index in order))
        sides = (position.own, position.other)
        if any(line & ~side == 0 for line in game.lines for side in sides):
            continue
        solution = without_search(position)
        if solution is not None:
            kinds[solution.kind] += 1
            moves, outcome = by_minimax(position)
            assert moves == solution.moves, position.moves
            assert outcome == "win" or solution.kind == "block", position.moves
    assert set(kinds) == {"win", "block", "fork"}


def test_the_square_game_is_not_searched():
    with pytest.raises(BadUse, match="more than the 10"):
        by_rule(Position(GAMES["sTTT"], "AY"))


def test_gold_of_the_plain_game(eval_folder):
    """../shared: all but five items agree; there gold is part of the draw-keeping moves."""
    items = read_items(eval_folder / "ttt_bench_ottt.parquet", GAMES["oTTT"])
    assert len(items) == 108
    differing = {}
    kinds: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for position, gold in items:
        solution = by_rule(position)
        moves, outcome = by_minimax(position)
        assert moves == solution.moves
        kinds[solution.kind] += 1
        outcomes[outcome] += 1
        if set(solution.moves) != right_moves(gold):
            differing[position.moves] = gold
            assert right_moves(gold) < set(solution.moves) and outcome == "draw"
    assert differing == EXCEPTIONS
    assert kinds == GAMES["oTTT"].kinds
    # 23 draws agree and 5 do not.
    assert outcomes == {"win": 76, "draw": 28, "loss": 4}
    assert Counter(len(position.moves) for position, _ in items) == GAMES["oTTT"].shown
    assert max(len(right_moves(gold)) for _, gold in items) == GAMES["oTTT"].most_right


def test_gold_of_the_square_game(eval_folder):
    """../shared: every item agrees."""
    game = GAMES["sTTT"]
    items = read_items(eval_folder / "ttt_bench_sttt.parquet", game)
    assert len(items) == 120
    for position, gold in items:
        assert set(by_rule(position).moves) == right_moves(gold), position.moves
    assert Counter(by_rule(position).kind for position, _ in items) == game.kinds
    assert Counter(len(position.moves) for position, _ in items) == game.shown
    assert max(len(right_moves(gold)) for _, gold in items) == game.most_right
