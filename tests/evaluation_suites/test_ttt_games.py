"""Boards and positions: lines counted by hand, symmetries, questions read and written."""

import pytest

from instella.errors import BadUse
from instella.evaluation.ttt.games import GAMES
from instella.evaluation.ttt.positions import Position, checked, question, read_question


def lines_of(name: str) -> set[str]:
    game = GAMES[name]
    return {game.letters(line) for line in game.lines}


@pytest.mark.parametrize(
    ("name", "points", "lines", "size"),
    [("oTTT", 9, 8, 3), ("dTTT", 15, 15, 3), ("cTTT", 12, 23, 4), ("sTTT", 25, 25, 4)],
)
def test_lines_are_as_many_as_the_rules_say(name, points, lines, size):
    game = GAMES[name]
    assert (len(game.points), len(game.places), len(game.lines)) == (points, points, lines)
    assert {line.bit_count() for line in game.lines} == {size}
    assert len(lines_of(name)) == lines


def test_named_lines():
    assert {"CEG", "ADG", "DEF"} <= lines_of("oTTT")
    # The second grid is C J K, F L M, I N O; nothing runs from one grid into the other.
    assert {"CJK", "CFI", "CLO", "IKL", "JLN", "AEI"} <= lines_of("dTTT")
    assert not {"BCJ", "EFL", "DEL"} & lines_of("dTTT")
    # Faces, diagonal rectangles of each cube, and the shared face.
    assert {"ABCD", "BCFG", "IJKL", "BCEH", "ACEG", "BFJL"} <= lines_of("cTTT")
    assert not any(set("AE") <= set(line) and set("IK") & set(line) for line in lines_of("cTTT"))
    assert {"ABFG", "BFHL", "STXY"} <= lines_of("sTTT")
    assert "ACKM" not in lines_of("sTTT")


@pytest.mark.parametrize(("name", "count"), [("oTTT", 8), ("dTTT", 4), ("cTTT", 16), ("sTTT", 8)])
def test_symmetries_keep_the_lines(name, count):
    game = GAMES[name]
    assert len(set(game.symmetries)) == count
    for places in game.symmetries:
        moved = {
            sum(1 << places[i] for i in range(len(places)) if line >> i & 1) for line in game.lines
        }
        assert moved == set(game.lines)


def test_turned_boards_are_one_board_and_others_are_not():
    game = GAMES["oTTT"]
    boards = {Position(game, moves).canonical() for moves in ("AB", "AD", "CF", "IH", "GH")}
    assert len(boards) == 1
    assert Position(game, "BA").canonical() not in boards
    assert Position(game, "AF").canonical() not in boards


@pytest.mark.parametrize("name", GAMES)
def test_a_question_is_read_back(name):
    game = GAMES[name]
    for count in (2, 5):
        position = Position(game, game.points[:count])
        text = question(position)
        assert text.startswith(game.rules)
        assert read_question(game, text + " Box it.", "here") == position
        assert f"Where should {('Alice', 'Bob')[count % 2]} play next?" in text


def test_the_published_forms_of_a_move_are_read():
    text = (
        "Rules. Alice first places a white stone at B. Then Bob places a black stone at A. "
        "Then Alice places a white stone at F. Where should Bob play next? Box it."
    )
    assert read_question(GAMES["sTTT"], text, "here").moves == "BAF"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Who wins?", "no question of TTT-Bench"),
        ("Alice first places a black stone at A. Where should Bob play next?", "out of turn"),
        ("Bob places a black stone at A. Where should Alice play next?", "out of turn"),
        ("Alice first places a white stone at A. Where should Alice play next?", "Bob's turn"),
        ("Alice first places a white stone at Z. Where should Bob play next?", "no point"),
    ],
)
def test_what_is_no_question_is_refused(text, said):
    with pytest.raises(BadUse, match=f"^here: .*{said}"):
        read_question(GAMES["oTTT"], text, "here")


@pytest.mark.parametrize(
    ("moves", "said"),
    [("AA", "played twice"), ("ADBEC", "over after"), ("ABCDEFGHI", "no point is free")],
)
def test_moves_that_cannot_be_are_refused(moves, said):
    with pytest.raises(BadUse, match=said):
        checked(GAMES["oTTT"], moves, "here")
