"""Checks of the synthetic problems: who writes them, and what they may start from."""

from instella.recipe.fields import Place, Places
from instella.recipe.graph import SYNTHETIC, names_synthetic
from instella.recipe.settings import Part, Recipe, Teacher


def check_synthesis(recipe: Recipe, places: Places) -> None:
    """Teacher, problems, and the source's name; BadUse at the first fault."""
    if SYNTHETIC in recipe.sources:
        what = "is the name of what the stages synthetic_* make"
        raise places.error(("sources", SYNTHETIC), what, "call the source something else")
    if recipe.synthesis is None:
        if names_synthetic(recipe):
            what = f"is missing, but a mixture names the source '{SYNTHETIC}'"
            raise places.error(("synthesis",), what, "add it, or take another source")
        return
    _check_teacher(recipe.synthesis.teacher, places)
    if not recipe.synthesis.problems:
        raise places.error(("synthesis", "problems"), "names no part", "write at least one")
    for index, part in enumerate(recipe.synthesis.problems):
        _check_problems(part, ("synthesis", "problems", index), recipe, places)


def _check_teacher(teacher: Teacher, places: Places) -> None:
    place: Place = ("synthesis", "teacher", "model")
    if teacher.kind == "endpoint" and not teacher.model:
        raise places.error(place, "is missing", "an endpoint needs the model's name")
    if teacher.kind == "rules" and teacher.model is not None:
        raise places.error(place, "does not belong to a teacher of kind 'rules'", "remove it")


def _check_problems(part: Part, place: Place, recipe: Recipe, places: Places) -> None:
    """Problems made from test items would teach the test, whatever the wording."""
    for name, item in recipe.evaluation.sets.items():
        if part.source == item.part.source and _may_overlap(_files(part), _files(item.part)):
            what = f"reads files of the held-out set '{name}'"
            raise places.error(place, what, "start from training problems")


def _files(part: Part) -> set[str]:
    """Files that an adapter is told to read; without any, all of them."""
    options = part.options or {}
    named = options.get("file", options.get("files", ()))
    return ({named} if isinstance(named, str) else set(named)) or {"*"}


def _may_overlap(left: set[str], right: set[str]) -> bool:
    are_patterns = any(character in name for name in left | right for character in "*?[")
    return are_patterns or bool(left & right)
