"""New positions by the rule that the published ones follow.

Moves are drawn evenly among the free points and only positions of an unfinished game are
kept. The shares of kinds and of moves shown are those of the published set (of moves shown
before the kinds are picked), and no item has more right moves than the largest of it. Each
position is another board, also after turns and reflections unless these are allowed, so none
of the positions to avoid comes back in a mirror.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from instella.errors import BadUse
from instella.evaluation.ttt.games import Game
from instella.evaluation.ttt.positions import Position
from instella.evaluation.ttt.solver import by_minimax, by_rule, without_search

# A small game runs out of boards; this many draws in a row without a new one say so.
VAIN_DRAWS = 10_000


@dataclass(frozen=True)
class Item:
    """A position with its right moves (letters in order) and its kind (``Game.kinds``)."""

    position: Position
    right: str
    kind: str

    @property
    def key(self) -> str:
        """16 hex digits that name the game and the moves."""
        named = f"{self.position.game.name} {self.position.moves}"
        return hashlib.sha256(named.encode()).hexdigest()[:16]


def new_items(
    game: Game, count: int, seed: int, avoid: Iterable[Position] = (), turned: bool = False
) -> list[Item]:
    """``count`` items, each on another board; the same for the same arguments anywhere.

    Args:
        game: which one.
        count: items.
        seed: of the drawn moves (Philox).
        avoid: positions whose boards, turned or reflected too, must not appear.
        turned: a turned or reflected board counts as another one; the small boards of oTTT
            have no fork left that the published set does not hold.

    Raises:
        BadUse: the game has too few boards of a kind.
    """
    left = shares(game.kinds, count)
    seen = {_board(position, turned) for position in avoid}
    items: list[Item] = []
    vain = 0
    for position in _drawn(game, seed):
        if len(items) == count:
            break
        if vain == VAIN_DRAWS:
            missing = ", ".join(f"{number} {kind}" for kind, number in left.items() if number)
            raise BadUse(
                f"{game.name}: only {len(items)} of {count} new boards were found, without "
                f"{missing}; ask for fewer, or allow turned boards"
            )
        vain += 1
        board = _board(position, turned)
        if board in seen:
            continue
        item = _solved(position, left)
        if item is None:
            continue
        seen.add(board)
        left[item.kind] -= 1
        items.append(item)
        vain = 0
    return items


def shares(weights: Mapping[str, int], count: int) -> dict[str, int]:
    """``count`` split by weights; what rounding leaves goes to the largest remainders."""
    total = sum(weights.values())
    parts = {name: count * weight // total for name, weight in weights.items()}
    order = sorted(weights, key=lambda name: -(count * weights[name] % total))
    for name in order[: count - sum(parts.values())]:
        parts[name] += 1
    return parts


def _board(position: Position, turned: bool) -> tuple[int, int]:
    return (position.own, position.other) if turned else position.canonical()


def _drawn(game: Game, seed: int) -> Iterator[Position]:
    """Positions without end, of unfinished games, with as many moves as published ones show."""
    generator = np.random.Generator(np.random.Philox(seed))
    lengths = np.repeat(list(game.shown), list(game.shown.values()))
    while True:
        length = int(lengths[generator.integers(len(lengths))])
        order = generator.permutation(len(game.points))[:length]
        position = Position(game, "".join(game.points[index] for index in order))
        if not any(
            line & ~side == 0 for line in game.lines for side in (position.own, position.other)
        ):
            yield position


def _solved(position: Position, left: Mapping[str, int]) -> Item | None:
    """The item, if its kind is still wanted and it has few enough right moves."""
    game = position.game
    solution = without_search(position)
    if solution is None:
        # Full search is for games whose published items needed it.
        if not game.by_outcome and not left.get("other"):
            return None
        solution = by_rule(position)
    if len(solution.moves) > game.most_right:
        return None
    kind = by_minimax(position)[1] if game.by_outcome else solution.kind
    return Item(position, solution.moves, kind) if left.get(kind) else None
