"""The single values of a recipe by their path, such as ``stages.sft.data.parts[0].repeat``."""

import re
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from typing import Any

from instella.recipe.settings import Recipe

_STEP = re.compile(r"[^.\[\]]+|\[(?:\d+|\*)\]")


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested dicts and lists as ``a.b[0].c`` and value; empty ones are leaves."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flatten(item, f"{path}.{key}" if path else key)
    elif isinstance(value, (list, tuple)) and value:
        for index, item in enumerate(value):
            yield from flatten(item, f"{path}[{index}]")
    else:
        yield path, value


def leaves(recipe: Recipe) -> dict[str, Any]:
    """Path to value of every setting, those left at their default included."""
    return dict(flatten(asdict(recipe)))


@cache
def steps(path: str) -> tuple[str, ...]:
    """``a.b[0]`` as ``("a", "b", "[0]")``."""
    return tuple(_STEP.findall(path))


def value_at(values: Any, path: str) -> Any:
    """The part of nested dicts and lists at ``path``.

    Raises:
        KeyError: there is none, with the path.
    """
    for step in steps(path):
        try:
            values = values[int(step[1:-1])] if step.startswith("[") else values[step]
        except (KeyError, IndexError, TypeError):
            raise KeyError(path) from None
    return values
