"""Where two JSON values differ."""

from collections.abc import Iterator, Mapping
from typing import Any

Place = tuple[str | int, ...]


class _Nothing:
    """Stands for a value that is not there."""


NOTHING = _Nothing()


def differing_values(left: Any, right: Any) -> Iterator[tuple[Place, Any, Any]]:
    """Every value that differs: its keys and numbers from the top, and what both sides hold.

    ``NOTHING`` stands where one side has no such value. A list is walked by its numbers, so one
    item put in makes all behind it differ. No recursion: foreign values may nest deeply.
    """
    waiting: list[tuple[Place, Any, Any]] = [((), left, right)]
    while waiting:
        place, one, other = waiting.pop()
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            keys = sorted({*one, *other}, reverse=True)
            waiting += [((*place, k), one.get(k, NOTHING), other.get(k, NOTHING)) for k in keys]
        elif isinstance(one, list) and isinstance(other, list):
            count = max(len(one), len(other))
            sides = [[*side, *[NOTHING] * (count - len(side))] for side in (one, other)]
            waiting += [((*place, n), sides[0][n], sides[1][n]) for n in reversed(range(count))]
        elif type(one) is not type(other) or one != other:
            yield place, one, other
