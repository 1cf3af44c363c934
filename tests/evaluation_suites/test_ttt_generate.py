"""New positions: the rule, the shares, other boards than those to avoid, the same anywhere."""

from collections import Counter

import pytest

from instella.canonical import json_bytes, sha256_bytes, write_jsonl
from instella.errors import BadUse
from instella.evaluation.ttt.files import game_called, read_items, row_of
from instella.evaluation.ttt.games import GAMES
from instella.evaluation.ttt.generate import new_items, shares
from instella.evaluation.ttt.positions import checked, read_question
from instella.evaluation.ttt.solver import by_minimax, by_rule

# SHA-256 of the three lines.
KNOWN = "b218c3753307f3276b7c17c2f5e34de248377f22dc238ea0915f8ba15ecdaea6"


@pytest.fixture(scope="module", params=["dTTT", "cTTT", "sTTT"])
def made(request):
    game = GAMES[request.param]
    return game, new_items(game, 40, 7)


def test_items_follow_the_rule(made):
    game, items = made
    for item in items:
        position = checked(game, item.position.moves, item.key)
        assert by_rule(position).moves == item.right
        assert 1 <= len(item.right) <= game.most_right
        assert len(position.moves) in game.shown
        expected = by_minimax(position)[1] if game.by_outcome else by_rule(position).kind
        assert item.kind == expected


def test_kinds_have_the_published_shares(made):
    game, items = made
    assert Counter(item.kind for item in items) == shares(game.kinds, 40)


def test_no_board_comes_twice_or_back_in_a_mirror(made):
    game, items = made
    boards = {item.position.canonical() for item in items}
    assert len(boards) == 40
    others = new_items(game, 40, 7, avoid=[item.position for item in items])
    assert not boards & {item.position.canonical() for item in others}


def test_a_seed_gives_the_same_items_and_another_others(made):
    game, items = made
    assert new_items(game, 40, 7) == items
    assert new_items(game, 40, 8) != items


def test_the_bytes_of_some_items_are_known():
    rows = [json_bytes(row_of(item)) for item in new_items(GAMES["sTTT"], 3, 0)]
    assert sha256_bytes(b"".join(rows)) == KNOWN


def test_every_fork_of_the_plain_game_is_published(eval_folder):
    """../shared: so new forks are only to be had as turned boards."""
    game = GAMES["oTTT"]
    avoid = [position for position, _ in read_items(eval_folder / "ttt_bench_ottt.parquet", game)]
    with pytest.raises(BadUse, match="without 1 fork; ask for fewer, or allow turned boards"):
        new_items(game, 4, 0, avoid)
    items = new_items(game, 20, 0, avoid, turned=True)
    seen = {(position.own, position.other) for position in avoid}
    assert not seen & {(item.position.own, item.position.other) for item in items}
    assert Counter(item.kind for item in items) == shares(game.kinds, 20)


def test_shares_add_up_and_favour_large_remainders():
    assert shares({"a": 40, "b": 40, "c": 22, "d": 6}, 10) == {"a": 4, "b": 4, "c": 2, "d": 0}
    assert shares({"a": 1, "b": 2}, 4) == {"a": 1, "b": 3}
    assert sum(shares({"a": 68, "b": 7, "c": 15}, 97).values()) == 97


def test_items_are_written_and_read_back(tmp_path, made):
    game, items = made
    path = tmp_path / "items.jsonl"
    write_jsonl(path, [row_of(item) for item in items])
    read = read_items(path, game)
    assert [position for position, _ in read] == [item.position for item in items]
    assert [gold for _, gold in read] == [", ".join(item.right) for item in items]
    for item in items:
        assert read_question(game, row_of(item)["question"], item.key) == item.position
    with pytest.raises(BadUse, match="holds no item of oTTT"):
        read_items(path, GAMES["oTTT"])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"key":"x"}\n', "line 1: lacks the texts moves and answer"),
        ("a.jsonl", b'{"game":"oTTT","moves":"AZ","answer":"B"}\n', "line 1: Z is no point"),
        ("a.parquet", b"PAR1", "no Parquet file"),
    ],
)
def test_files_of_another_form_are_refused(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadUse, match=said):
        read_items(path, GAMES["oTTT"])


def test_files_that_are_not_there_and_unknown_games_are_refused(tmp_path):
    with pytest.raises(BadUse, match="give a readable file"):
        read_items(tmp_path / "none.jsonl", GAMES["oTTT"])
    with pytest.raises(BadUse, match="choose one of oTTT, dTTT, cTTT, sTTT"):
        game_called("xTTT")
