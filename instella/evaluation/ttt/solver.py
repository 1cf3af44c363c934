"""Right moves of a position, by the rule of the published items and by minimax.

The rule: every move that wins at once; else the one move that blocks a win; else every move
that makes two threats or more at once; else minimax, which prefers the fastest win, then a
draw, then the slowest loss. Its first three steps are minimax cut after three moves, so both
agree wherever one of them applies (tests/evaluation_suites/test_ttt_solver.py).
"""

from dataclasses import dataclass

from instella.errors import BadUse
from instella.evaluation.ttt.games import Game
from instella.evaluation.ttt.positions import Position

# 3**10 boards at most; the square game is never searched.
MOST_FREE = 10

_WIN = 1000


@dataclass(frozen=True)
class Solution:
    """Right moves (letters in order) and the step of the rule that gave them.

    ``kind`` is ``win``, ``block``, ``fork`` or ``other``.
    """

    moves: str
    kind: str


def by_rule(position: Position) -> Solution:
    """Right moves by the published rule.

    Raises:
        BadUse: minimax is asked for with more than ``MOST_FREE`` free points.
    """
    return without_search(position) or Solution(by_minimax(position)[0], "other")


def without_search(position: Position) -> Solution | None:
    """Right moves by the first three steps of the rule; None when none of them applies."""
    game, own, other = position.game, position.own, position.other
    wins = completions(game, own, other)
    if wins:
        return Solution(game.letters(wins), "win")
    blocks = completions(game, other, own)
    if blocks.bit_count() == 1:
        return Solution(game.letters(blocks), "block")
    forks = 0 if blocks else _forks(game, own, other)
    if forks:
        return Solution(game.letters(forks), "fork")
    return None


def completions(game: Game, own: int, other: int) -> int:
    """Free points that complete a line of ``own``."""
    found = 0
    for line in game.lines:
        missing = line & ~own
        if missing.bit_count() == 1 and not missing & other:
            found |= missing
    return found


def _forks(game: Game, own: int, other: int) -> int:
    found = 0
    for index in range(len(game.points)):
        point = 1 << index
        if not point & (own | other) and completions(game, own | point, other).bit_count() >= 2:
            found |= point
    return found


def by_minimax(position: Position) -> tuple[str, str]:
    """Best moves of full search (letters in order), and the outcome: win, draw or loss.

    Raises:
        BadUse: more than ``MOST_FREE`` free points.
    """
    free = position.free
    if free.bit_count() > MOST_FREE:
        raise BadUse(
            f"{position.game.name} after {position.moves}: {free.bit_count()} points are free, "
            f"more than the {MOST_FREE} that are searched; ask later in the game"
        )
    search = _Search(position.game)
    own, other = position.own, position.other
    values = {
        letter: search.value_of_move(own, other, position.game.points.index(letter))
        for letter in position.game.letters(free)
    }
    best = max(values.values())
    outcome = "win" if best > 0 else "loss" if best < 0 else "draw"
    return "".join(letter for letter, value in values.items() if value == best), outcome


class _Search:
    """Negamax; a win in n moves is worth ``_WIN - n`` to the winner."""

    def __init__(self, game: Game) -> None:
        self._game = game
        self._known: dict[tuple[int, int], int] = {}

    def value_of_move(self, own: int, other: int, index: int) -> int:
        """What a move is worth to the player who makes it."""
        after = own | 1 << index
        if any(line & ~after == 0 for line in self._game.lines_through[index]):
            return _WIN - 1
        value = self._value(other, after)
        # One move further away.
        return -(value - 1 if value > 0 else value + 1 if value < 0 else 0)

    def _value(self, own: int, other: int) -> int:
        known = self._known.get((own, other))
        if known is None:
            taken = own | other
            known = max(
                (
                    self.value_of_move(own, other, index)
                    for index in range(len(self._game.points))
                    if not taken >> index & 1
                ),
                default=0,
            )
            self._known[own, other] = known
        return known
