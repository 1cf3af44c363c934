"""Checks of imported checkpoints against the rest of the recipe."""

import re

from instella.recipe.fields import Place, Places, suggestion
from instella.recipe.graph import build_graph, checkpoints
from instella.recipe.settings import Recipe

_CONTENT = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def check_imports(recipe: Recipe, places: Places) -> None:
    """Names, pins, and no stage that continues moments; BadUse at the first fault."""
    known = checkpoints(recipe)
    for name, item in (recipe.imports or {}).items():
        place: Place = ("imports", name)
        if name not in known:
            raise places.error(place, "is not a checkpoint", suggestion(name, known))
        if not _CONTENT.fullmatch(item.content):
            what, cure = "is not 64 hex digits", "let `instella import` write it"
            raise places.error((*place, "content"), what, cure)
        if (item.repository is None) != (item.revision is None):
            what = "names only one of repository and revision"
            raise places.error(place, what, "name both or none")
        if item.revision is not None and not _COMMIT.fullmatch(item.revision):
            raise places.error((*place, "revision"), "is not 40 hex digits", "name the commit")
    if recipe.imports:
        _check_moments(recipe, places)


def _check_moments(recipe: Recipe, places: Places) -> None:
    for stage in build_graph(recipe).values():
        start = stage.inputs.get("init")
        if start not in (recipe.imports or {}) or stage.is_imported:
            continue
        if not stage.settings[stage.kind].training.reset_optimizer:
            what = f"comes without optimizer moments, which {stage.name} continues"
            cure = "set reset_optimizer to true in that stage"
            raise places.error(("imports", str(start)), what, cure)
