"""Positions of a game: the moves so far, read from a question and written as one."""

import re
from dataclasses import dataclass

from instella.errors import BadUse
from instella.evaluation.ttt.games import Game

PLAYERS = ("Alice", "Bob")
COLOURS = ("white", "black")

_MOVE = re.compile(r"\b(Alice|Bob) (?:first )?places? a (white|black) \w+ (?:at|on) ([A-Z])\b")
_TURN = re.compile(r"Where should (Alice|Bob) play next\?")


@dataclass(frozen=True)
class Position:
    """Moves in order, one letter each; Alice's are those at 0, 2, 4 and so on."""

    game: Game
    moves: str

    @property
    def mover(self) -> str:
        """Who plays next."""
        return PLAYERS[len(self.moves) % 2]

    @property
    def own(self) -> int:
        """Points of the player who moves next."""
        return self._points(len(self.moves) % 2)

    @property
    def other(self) -> int:
        """Points of the opponent."""
        return self._points(1 - len(self.moves) % 2)

    @property
    def free(self) -> int:
        """Points that nobody holds."""
        return self.game.full & ~(self.own | self.other)

    def _points(self, player: int) -> int:
        return sum(self.game.bit(letter) for letter in self.moves[player::2])

    def canonical(self) -> tuple[int, int]:
        """One board (own, other) for all that a turn or reflection makes of this one."""
        return min(
            (_moved(self.own, places), _moved(self.other, places))
            for places in self.game.symmetries
        )


def _moved(points: int, places: tuple[int, ...]) -> int:
    return sum(1 << place for i, place in enumerate(places) if points >> i & 1)


def checked(game: Game, moves: str, where: str) -> Position:
    """The position after ``moves``.

    Raises:
        BadUse: a letter that is no point or is taken, or a game that is over; names ``where``.
    """
    for index, letter in enumerate(moves):
        if letter not in game.points:
            raise BadUse(f"{where}: {letter} is no point of {game.name}; use {game.points}")
        if letter in moves[:index]:
            raise BadUse(f"{where}: {letter} is played twice; correct the moves")
    if len(moves) >= len(game.points):
        raise BadUse(f"{where}: no point is free; leave a move to ask for")
    position = Position(game, moves)
    if any(line & ~side == 0 for line in game.lines for side in (position.own, position.other)):
        raise BadUse(f"{where}: the game is over after {moves}; ask before its end")
    return position


def read_question(game: Game, text: str, where: str) -> Position:
    """The position that a question of the benchmark describes.

    Raises:
        BadUse: no such question, players out of turn, or as ``checked``.
    """
    turn = _TURN.search(text)
    found = _MOVE.findall(text)
    if turn is None or not found:
        raise BadUse(f"{where}: no question of TTT-Bench; expected moves and 'Where should ...'")
    for index, (player, colour, _) in enumerate(found):
        if (player, colour) != (PLAYERS[index % 2], COLOURS[index % 2]):
            raise BadUse(f"{where}: move {index + 1} is out of turn; Alice plays white and first")
    position = checked(game, "".join(letter for _, _, letter in found), where)
    if position.mover != turn[1]:
        raise BadUse(f"{where}: asks for {turn[1]}, but it is {position.mover}'s turn")
    return position


def question(position: Position) -> str:
    """Rules, moves and question in our words; the suffix of a prompt is added elsewhere."""
    parts = [position.game.rules]
    for index, letter in enumerate(position.moves):
        first = "first " if index == 0 else ""
        player, colour = PLAYERS[index % 2], COLOURS[index % 2]
        parts.append(f"{player} {first}places a {colour} {position.game.piece} at {letter}.")
    parts.append(f"Where should {position.mover} play next?")
    return " ".join(parts)
