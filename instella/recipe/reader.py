"""Reads a recipe or a placement: types and bounds first, then what fits together.

Imports no torch, no numpy and no jsonschema, because Snakemake reads the recipe on every
start. Every fault is one ``BadUse`` line: file, line, what is wrong, what to do.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from instella.recipe.check_data import check_data
from instella.recipe.check_evaluation import check_evaluation
from instella.recipe.check_imports import check_imports
from instella.recipe.check_synthesis import check_synthesis
from instella.recipe.check_training import check_training
from instella.recipe.fields import FieldReader, Places
from instella.recipe.nodes import Entries, Items, Node, Scalar
from instella.recipe.settings import Placement, Recipe
from instella.recipe.tree import read_tree

PROJECT = Path(__file__).resolve().parents[2]
# Folders of the project that results would be mixed into.
OWN = (
    ".git", ".kit", ".venv", ".venvs", "benchmarks", "containers", "docs", "instella", "recipes",
    "requirements", "tests", "workflow",
)  # fmt: skip


def read_recipe(path: Path) -> Recipe:
    """The recipe in a YAML file, checked.

    Raises:
        BadUse: with file and line of the first fault.
    """
    reader = FieldReader(str(path))
    recipe: Recipe = reader.read(Recipe, read_tree(path))
    check_data(recipe, reader.places)
    check_synthesis(recipe, reader.places)
    check_training(recipe, reader.places)
    check_evaluation(recipe, reader.places)
    check_imports(recipe, reader.places)
    return recipe


def read_placement(path: Path, **overrides: Any) -> Placement:
    """The placement in a YAML file such as ``config.yaml``.

    Args:
        path: the file.
        overrides: settings that win over the file's; text is read as the type that the
            setting has, a mapping replaces single settings of a nested one, None is
            ignored.

    Raises:
        BadUse: with file and line of the first fault; for an override, "option" stands
            in place of the line.
    """
    tree = read_tree(path)
    _merge(tree, overrides)
    reader = FieldReader(str(path))
    placement: Placement = reader.read(Placement, tree)
    _check_placement(placement, reader.places)
    return placement


def _merge(tree: Entries, overrides: Mapping[str, Any]) -> None:
    for key, value in overrides.items():
        if value is None:
            continue
        old = tree.entries.get(key)
        if isinstance(value, Mapping) and isinstance(old, Entries):
            _merge(old, value)
        else:
            tree.entries[key] = node_of(value)
            tree.lines[key] = 0


def node_of(value: Any) -> Node:
    """Plain values as nodes of a file; text counts as written for whatever type is asked."""
    if isinstance(value, Mapping):
        items = {str(key): node_of(item) for key, item in value.items()}
        return Entries(0, items, dict.fromkeys(items, 0))
    if isinstance(value, (list, tuple)):
        return Items(0, [node_of(item) for item in value])
    if isinstance(value, (str, Path)):
        return Scalar(0, str(value), plain=False, given=True)
    return Scalar(0, json.dumps(value), plain=True)


def _check_placement(placement: Placement, places: Places) -> None:
    for name in ("recipe", "results", "store", "downloads"):
        value = getattr(placement, name)
        if not value or any(character < " " for character in value):
            raise places.error((name,), "is not a path", "name a file or folder")
        if value.startswith("~"):
            raise places.error((name,), "begins with ~, which stays as it is", "write it in full")
    if set("{}") & set(placement.results):
        raise places.error(("results",), "holds a brace", "name a folder without { and }")
    if placement.ranks & (placement.ranks - 1):
        what = f"is {placement.ranks}, not a power of two"
        raise places.error(("ranks",), what, "write 1, 2, 4, 8 and so on")
    shared = placement.sharding.ranks
    if placement.sharding.kind == "hybrid" and (shared is None or shared & (shared - 1)):
        what = f"is {shared}, and hybrid sharding needs a power of two"
        raise places.error(("sharding", "ranks"), what, "write the ranks of one node")
    for name in ("results", "store", "downloads"):
        folder = Path(getattr(placement, name))
        taken = next((own for own in OWN if folder.resolve().is_relative_to(PROJECT / own)), None)
        if taken is not None:
            what = f"is {folder}, within the project's own {taken}"
            raise places.error((name,), what, "name a folder beside it")
        found = next((item for item in (folder, *folder.parents) if os.path.lexists(item)), None)
        if found is not None and not found.is_dir():
            raise places.error((name,), f"{found} is not a folder", "name a folder")
