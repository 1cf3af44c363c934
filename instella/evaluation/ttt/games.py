"""The four games of TTT-Bench (arXiv 2506.10209) as points, coordinates and lines.

Alice plays white and moves first, Bob plays black. Whoever first holds every point of a line
wins. A set of points is an integer with one bit a point, in the order of ``Game.points``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations, product

Point = tuple[int, ...]


@dataclass(frozen=True)
class Game:
    """One game.

    Attributes:
        name: as in the benchmark.
        points: letters of the points.
        places: coordinates of each point, in the order of ``points``.
        lines: winning sets, as bit sets, ascending.
        rules: the rules in our words.
        piece: what is placed.
        shown: moves before the question -> items of the published set.
        kinds: kind of question -> items of the published set; a step of the rule
            (``solver.Solution.kind``), or with ``by_outcome`` the outcome of minimax.
        by_outcome: which of the two.
        most_right: largest number of right moves of a published item.
    """

    name: str
    points: str
    places: tuple[Point, ...]
    lines: tuple[int, ...]
    rules: str
    piece: str
    shown: Mapping[int, int]
    kinds: Mapping[str, int]
    most_right: int
    by_outcome: bool = False

    @property
    def full(self) -> int:
        """All points."""
        return (1 << len(self.points)) - 1

    @cached_property
    def lines_through(self) -> tuple[tuple[int, ...], ...]:
        """For each point the lines that hold it."""
        indices = range(len(self.points))
        return tuple(tuple(line for line in self.lines if line >> i & 1) for i in indices)

    @cached_property
    def symmetries(self) -> tuple[tuple[int, ...], ...]:
        """Turns and reflections of the board: for each, where every point goes."""
        return _symmetries(self.places)

    def bit(self, letter: str) -> int:
        """The set that holds one point."""
        return 1 << self.points.index(letter)

    def letters(self, points: int) -> str:
        """The letters of a set, in order."""
        return "".join(letter for i, letter in enumerate(self.points) if points >> i & 1)


def _bits(indices: Iterable[int]) -> int:
    return sum(1 << index for index in indices)


def _symmetries(places: tuple[Point, ...]) -> tuple[tuple[int, ...], ...]:
    """Signed permutations of the axes about the middle that keep the set of places."""
    axes = range(len(places[0]))
    ends = [(min(p[a] for p in places), max(p[a] for p in places)) for a in axes]
    # Twice the distance from the middle, which is a whole number.
    centred = [tuple(2 * p[a] - sum(ends[a]) for a in axes) for p in places]
    index = {place: number for number, place in enumerate(centred)}
    found = []
    for order in permutations(axes):
        for signs in product((1, -1), repeat=len(axes)):
            moved = [tuple(s * p[a] for s, a in zip(signs, order, strict=True)) for p in centred]
            if all(place in index for place in moved):
                found.append(tuple(index[place] for place in moved))
    return tuple(sorted(found))


def _grid(columns: int, rows: int) -> tuple[Point, ...]:
    return tuple((x, y) for y in range(rows) for x in range(columns))


def _threes(places: tuple[Point, ...], first_columns: Iterable[int]) -> tuple[int, ...]:
    """Rows, columns and diagonals of each 3x3 grid that begins at one of the columns."""
    index = {place: number for number, place in enumerate(places)}
    lines = set()
    for left in first_columns:
        for k in range(3):
            lines.add(_bits(index[left + i, k] for i in range(3)))
            lines.add(_bits(index[left + k, i] for i in range(3)))
        lines.add(_bits(index[left + i, i] for i in range(3)))
        lines.add(_bits(index[left + i, 2 - i] for i in range(3)))
    return tuple(sorted(lines))


def _squares(places: tuple[Point, ...]) -> tuple[int, ...]:
    """Unit squares, and squares of side sqrt(2) around an inner point."""
    index = {place: number for number, place in enumerate(places)}
    unit = ((0, 0), (1, 0), (0, 1), (1, 1))
    slanted = ((0, -1), (-1, 0), (1, 0), (0, 1))
    lines = []
    for (x, y), corners in product(places, (unit, slanted)):
        square = [(x + i, y + j) for i, j in corners]
        if all(place in index for place in square):
            lines.append(_bits(index[place] for place in square))
    return tuple(sorted(lines))


def _planes(places: tuple[Point, ...]) -> tuple[int, ...]:
    """Four vertices of one unit cube on one plane: six faces and six diagonal rectangles."""
    index = {place: number for number, place in enumerate(places)}
    lines = set()
    for left in (0, 1):
        cube = [place for place in places if place[0] in (left, left + 1)]
        for four in combinations(cube, 4):
            if _volume(*four) == 0:
                lines.add(_bits(index[place] for place in four))
    return tuple(sorted(lines))


def _volume(a: Point, b: Point, c: Point, d: Point) -> int:
    """Six times the volume of a tetrahedron: zero when its corners lie on one plane."""
    (p, q, r), (s, t, u), (v, w, x) = (
        tuple(m - n for m, n in zip(other, a, strict=True)) for other in (b, c, d)
    )
    return p * (t * x - u * w) - q * (s * x - u * v) + r * (s * w - t * v)


_NINE = "ABCDEFGHI"
_FIFTEEN = "ABCDEFGHIJKLMNO"
_TWELVE = "ABCDEFGHIJKL"
_TWENTY_FIVE = "ABCDEFGHIJKLMNOPQRSTUVWXY"

_DOUBLE: tuple[Point, ...] = (*_grid(3, 3), (3, 0), (4, 0), (3, 1), (4, 1), (3, 2), (4, 2))
# Two unit cubes that share the face B, C, F, G.
_CUBES: tuple[Point, ...] = (
    (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1), (0, 0, 0), (1, 0, 0),
    (1, 1, 0), (0, 1, 0), (2, 0, 1), (2, 1, 1), (2, 0, 0), (2, 1, 0),
)  # fmt: skip

GAMES: Mapping[str, Game] = {
    game.name: game
    for game in (
        Game(
            name="oTTT",
            points=_NINE,
            places=_grid(3, 3),
            lines=_threes(_grid(3, 3), (0,)),
            rules="Two players, Alice (white) and Bob (black), take turns on a 3x3 board. Its "
            "nine points are named row by row, from the top left to the bottom right: "
            "A, B, C; D, E, F; G, H, I. A turn puts one stone on a free point. The first to "
            "hold three points in a row, a column or a diagonal wins.",
            piece="stone",
            shown={4: 57, 5: 51},
            kinds={"win": 40, "block": 40, "fork": 22, "other": 6},
            most_right=2,
        ),
        Game(
            name="dTTT",
            points=_FIFTEEN,
            places=_DOUBLE,
            lines=_threes(_DOUBLE, (0, 2)),
            rules="Two players, Alice (white) and Bob (black), take turns on two 3x3 boards "
            "that share a column. The rows of the left board are A, B, C; D, E, F; G, H, I. "
            "The rows of the right board are C, J, K; F, L, M; I, N, O, so C, F and I belong "
            "to both. A turn puts one stone on a free point. The first to hold three points in "
            "a row, a column or a diagonal of the left board, or of the right board, wins.",
            piece="stone",
            shown={6: 50, 7: 50},
            kinds={"win": 40, "block": 20, "fork": 40},
            most_right=4,
        ),
        Game(
            name="cTTT",
            points=_TWELVE,
            places=_CUBES,
            lines=_planes(_CUBES),
            rules="Two players, Alice (white) and Bob (black), take turns on the corners of "
            "two cubes of side 1 that share a face. The corners lie at A (0,0,1), B (1,0,1), "
            "C (1,1,1), D (0,1,1), E (0,0,0), F (1,0,0), G (1,1,0), H (0,1,0), I (2,0,1), "
            "J (2,1,1), K (2,0,0) and L (2,1,0); B, C, F and G belong to both cubes. A turn "
            "puts one sticker on a free corner. The first to hold four corners of one cube "
            "that lie on one plane wins: the four of a face, or of a rectangle through the "
            "middle of a cube.",
            piece="sticker",
            shown={5: 10, 6: 40, 7: 40},
            kinds={"win": 68, "draw": 7, "loss": 15},
            most_right=3,
            by_outcome=True,
        ),
        Game(
            name="sTTT",
            points=_TWENTY_FIVE,
            places=_grid(5, 5),
            lines=_squares(_grid(5, 5)),
            rules="Two players, Alice (white) and Bob (black), take turns on a square grid of "
            "5 x 5 points at distance 1, named row by row from A at the top left to Y at the "
            "bottom right. A turn puts one stone on a free point. The first to hold the four "
            "corners of a square wins; its side is 1, as for A, B, G, F, or the square root "
            "of 2, as for B, F, L, H.",
            piece="stone",
            shown={6: 60, 7: 60},
            kinds={"win": 30, "block": 30, "fork": 60},
            most_right=2,
        ),
    )
}  # fmt: skip
