"""Where each stage stands in the drawing of the graph: a lane for each kind of work.

Training runs from left to right; the tokens of a stage stand above it, its evaluation below.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from instella.recipe.graph import Stage

WIDTH, HEIGHT = 214, 66
GAP_X, GAP_Y, LANE_GAP = 26, 14, 40
MARGIN = 12
LANES = ("Sources", "Held-out and synthetic data", "Tokens", "Training", "Evaluation")
_LANE_OF = {
    "source": 0, "heldout": 1, "tokenizer": 1, "tokens_text": 2, "tokens_chat": 2,
    "tokens_preference": 2, "tokens_prompts": 2, "baseline": 4, "evaluate": 4, "results": 4,
}  # fmt: skip
_TRAINING = 3


@dataclass(frozen=True)
class Box:
    """A stage's rectangle, in pixels from the upper left corner."""

    x: int
    y: int


@dataclass(frozen=True)
class Drawing:
    """Size of all and of a box; boxes by stage, edges with their stages as SVG paths, lanes."""

    width: int
    height: int
    box: tuple[int, int]
    boxes: Mapping[str, Box]
    edges: tuple[tuple[str, str, str], ...]
    lanes: tuple[tuple[str, int], ...]


def lane_of(stage: Stage) -> int:
    """Number of a stage's lane."""
    if stage.kind.startswith("synthetic_"):
        return 1
    return _LANE_OF.get(stage.kind, _TRAINING)


def draw(graph: Mapping[str, Stage]) -> Drawing:
    """Place all stages of a graph, which is in an order in which they can run."""
    columns = _columns(graph)
    taken: dict[tuple[int, int], int] = {}
    places: dict[str, tuple[int, int, int]] = {}
    for name, stage in graph.items():
        cell = (lane_of(stage), columns[name])
        places[name] = (*cell, taken.get(cell, 0))
        taken[cell] = taken.get(cell, 0) + 1
    tops, y = [], MARGIN
    for lane in range(len(LANES)):
        rows = max((count for (own, _), count in taken.items() if own == lane), default=0)
        tops.append(y + LANE_GAP // 2)
        y += (rows * (HEIGHT + GAP_Y) + LANE_GAP) if rows else 0
    boxes = {
        name: Box(MARGIN + column * (WIDTH + GAP_X), tops[lane] + row * (HEIGHT + GAP_Y))
        for name, (lane, column, row) in places.items()
    }
    edges = tuple(
        (source, name, _path(boxes[source], boxes[name]))
        for name, stage in graph.items()
        for source in dict.fromkeys(stage.inputs.values())
    )
    used = sorted({lane for lane, _, _ in places.values()})
    width = MARGIN + (1 + max(columns.values(), default=0)) * (WIDTH + GAP_X)
    lanes = tuple((LANES[lane], tops[lane] - 8) for lane in used)
    return Drawing(width, y + MARGIN, (WIDTH, HEIGHT), boxes, edges, lanes)


def _columns(graph: Mapping[str, Stage]) -> dict[str, int]:
    """Training by the longest way to it, everything else beside what it belongs to."""
    columns: dict[str, int] = {}
    for name, stage in graph.items():
        if lane_of(stage) == _TRAINING:
            before = [columns[other] for other in stage.inputs.values() if other in columns]
            columns[name] = max(before, default=-1) + 1
    last = max(columns.values(), default=0)
    # the first training stage that reads them
    readers: dict[str, str] = {}
    for name in columns:
        for other in graph[name].inputs.values():
            readers.setdefault(other, name)
    counts = dict.fromkeys(range(len(LANES)), 0)
    for name, stage in graph.items():
        lane = lane_of(stage)
        if name in columns:
            continue
        if lane == 2:
            columns[name] = columns[readers[name]] if name in readers else 0
        elif stage.kind == "evaluate":
            columns[name] = columns.get(stage.inputs.get("model", ""), 0)
        elif stage.kind == "results":
            columns[name] = last
        else:
            # no more columns than training has, so that the drawing keeps its width
            columns[name] = counts[lane] % (last + 1)
            counts[lane] += 1
    return columns


def _path(source: Box, target: Box) -> str:
    """A curve from the source's right or lower edge to the target's left or upper edge."""
    if source.y == target.y:
        x, y = source.x + WIDTH, source.y + HEIGHT // 2
        end = target.x, target.y + HEIGHT // 2
        middle = (x + end[0]) // 2
        return f"M{x} {y}C{middle} {y} {middle} {end[1]} {end[0]} {end[1]}"
    x, y = source.x + WIDTH // 2, source.y + HEIGHT
    end = target.x + WIDTH // 2, target.y
    if target.y < source.y:
        y, end = source.y, (end[0], target.y + HEIGHT)
    middle = (y + end[1]) // 2
    return f"M{x} {y}C{x} {middle} {end[0]} {middle} {end[0]} {end[1]}"
