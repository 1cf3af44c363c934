"""Recorded roots: ``recipes/<name>.root`` says what a recipe makes, stage by stage.

The first line is the root, 64 hex digits, alone, the second ``recipe <hash>``, which tells for
which settings it holds. Then comes ``<content> <stage>`` for each stage in the graph's order.
``instella root --stages`` prints this text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.artifacts.manifest import Entry, Manifest
from instella.canonical import json_bytes, sha256_bytes
from instella.errors import BadUse
from instella.recipe.nodes import Entries, Items, Node, Scalar
from instella.recipe.tree import read_tree

_RECIPE = re.compile(r"recipe ([0-9a-f]{64})")
_LINE = re.compile(r"([0-9a-f]{64}) (\S+)")


def recorded_file(recipe_file: Path) -> Path:
    """Where the root of a recipe file is recorded: beside it, ending in ``.root``."""
    return recipe_file.with_suffix(".root")


def root_of(contents: Mapping[str, str]) -> str:
    """Root of stages with these contents, as ``instella.artifacts.check.root`` defines it."""
    return sha256_bytes(json_bytes(dict(contents)))


def recipe_hash(recipe_file: Path) -> str:
    """SHA-256, 64 hex digits, of a recipe's keys and values as written, without comments.

    Raises:
        BadUse: the file cannot be read or is not YAML.
    """
    return sha256_bytes(json_bytes(_plain(read_tree(recipe_file))))


def _plain(node: Node) -> Any:
    if isinstance(node, Entries):
        return {key: _plain(item) for key, item in node.entries.items()}
    if isinstance(node, Items):
        return [_plain(item) for item in node.items]
    assert isinstance(node, Scalar)
    return [node.text, node.plain]


@dataclass(frozen=True)
class Recorded:
    """A recorded root.

    Attributes:
        recipe: ``recipe_hash`` of the recipe that made it.
        contents: stage to content, in the graph's order.
    """

    recipe: str
    contents: Mapping[str, str]

    @property
    def root(self) -> str:
        """The root, 64 hex digits."""
        return root_of(self.contents)

    def to_text(self) -> str:
        """The text of the file."""
        lines = [f"{content} {stage}" for stage, content in self.contents.items()]
        return "\n".join([self.root, f"recipe {self.recipe}", *lines, ""])


def read_recorded(path: Path) -> Recorded:
    """The recorded root in a file.

    Raises:
        BadUse: the file is missing or has another form, or its root is not that of its
            stages; names the line.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadUse(f"{path}: not a readable recorded root: {error}; {_CURE}") from None
    recipe = _RECIPE.fullmatch(lines[1]) if len(lines) > 1 else None
    if recipe is None:
        raise BadUse(f"{path}:2: expected 'recipe <hash of the recipe>'; {_CURE}")
    contents: dict[str, str] = {}
    for number, line in enumerate(lines[2:], 3):
        found = _LINE.fullmatch(line)
        if found is None or found[2] in contents:
            raise BadUse(f"{path}:{number}: expected '<content> <stage>', once a stage; {_CURE}")
        contents[found[2]] = found[1]
    if lines[0] != root_of(contents):
        raise BadUse(f"{path}:1: expected the root of the stages below; {_CURE}")
    return Recorded(recipe[1], contents)


@dataclass(frozen=True)
class Compared:
    """How a finished run stands to a recorded root.

    Attributes:
        text: in one line.
        is_other: the root was recorded for these settings and is another one.
    """

    text: str
    is_other: bool = False


def comparison(recipe_file: Path, contents: Mapping[str, str]) -> Compared | None:
    """How a finished run stands to the recorded root of its recipe.

    Args:
        recipe_file: of the run.
        contents: stage to content of the run, in the graph's order.

    Returns:
        None if no root is recorded beside the recipe.
    """
    path = recorded_file(recipe_file)
    if not path.is_file():
        return None
    recorded = read_recorded(path)
    difference = first_difference(recorded.contents, contents)
    if difference is None:
        return Compared(f"equal to the recorded root, {path}")
    if recorded.recipe != recipe_hash(recipe_file):
        return Compared(f"not compared with {path}, which was recorded for other settings")
    return Compared(f"NOT EQUAL to the recorded root, {path}: {difference}", is_other=True)


_CURE = "write it with instella root --stages"


def first_difference(expected: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """The first stage, in the order of ``found``, whose content is another one, in words.

    Args:
        expected, found: stage to content, in the graph's order.
    """
    for stage, content in found.items():
        if stage not in expected:
            return f"{stage}: a stage that was not expected"
        if expected[stage] != content:
            return f"{stage}: expected content {expected[stage][:16]}, found {content[:16]}"
    missing = [stage for stage in expected if stage not in found]
    return f"{missing[0]}: expected, but not there" if missing else None


def first_different_file(
    expected: Mapping[str, Manifest], found: Mapping[str, Manifest]
) -> str | None:
    """As ``first_difference`` for manifests; names the first differing file too."""
    contents = [
        {stage: manifest.content for stage, manifest in manifests.items()}
        for manifests in (expected, found)
    ]
    text = first_difference(*contents)
    stage = text.partition(":")[0] if text else ""
    if stage not in expected or stage not in found:
        return text
    left, right = expected[stage].files, found[stage].files
    for path in sorted({*left, *right}):
        if left.get(path) != right.get(path):
            return f"{stage}: {path}: expected {_shown(left.get(path))}, found {_shown(right.get(path))}"
    return text


def _shown(entry: Entry | None) -> str:
    return "no such file" if entry is None else f"{entry.sha256[:16]} of {entry.size} bytes"
