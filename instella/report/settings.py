"""Every setting of a stage, and where its value comes from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from instella.artifacts.identity import settings_json
from instella.recipe.graph import Stage
from instella.recipe.imports import IMPORT
from instella.recipe.leaves import flatten
from instella.recipe.nodes import Entries, Items, Node
from instella.recipe.origins import Origin
from instella.recipe.tree import read_tree

DEFAULT = "default of the schema"
FOLLOWS = "follows from the recipe"
STAGE_KINDS = ("pretrain", "finetune", "preference", "policy")
# Names under which the graph hands settings to stages, and where the recipe has them.
_PLACES = {
    "model": "model", "tokenizer": "tokenizer", "prompt_suffix": "prompt_suffix",
    "ngram": "evaluation.ngram", "bootstrap": "evaluation.bootstrap", "sets": "evaluation.sets",
    "rollout": "evaluation.rollout",
    "claims": "evaluation.claims", "teacher": "synthesis.teacher", "problems": "synthesis.problems",
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One value: its path in the stage, where the recipe has it, and its origin."""

    path: str
    value: Any
    stated: str
    origin: Origin | None


@dataclass(frozen=True)
class Stated:
    """What a recipe file states: path to line, and the published origins of its settings."""

    file: str
    lines: Mapping[str, int]
    origins: Mapping[str, Origin] = field(default_factory=dict)


def stated(recipe_file: Path, origins: Mapping[str, Origin]) -> Stated:
    """The lines of a recipe file; of its path only the name is told, which no place changes."""
    return Stated(recipe_file.name, dict(_lines(read_tree(recipe_file), "")), origins)


def _lines(node: Node, path: str) -> Iterator[tuple[str, int]]:
    """Path, as ``recipe.leaves`` writes it, and line of every value."""
    yield path, node.line
    if isinstance(node, Entries):
        for key, item in node.entries.items():
            yield from _lines(item, f"{path}.{key}" if path else key)
    elif isinstance(node, Items):
        for index, item in enumerate(node.items):
            yield from _lines(item, f"{path}[{index}]")


def settings_of(stage: Stage, known: Stated) -> list[Setting]:
    """All settings of a stage, those left at their default included."""
    found = []
    for path, value in flatten(settings_json(stage)):
        name, dot, rest = path.partition(".")
        name, bracket, index = name.partition("[")
        place = _place(stage, name)
        if path.endswith(".training.seed") and "_seed" in stage.name:
            place, rest, dot = f"stages.{_base(stage)}.seeds", "", ""
        whole = f"{place}{bracket}{index}{dot}{rest}" if place else ""
        line = known.lines.get(whole)
        where = f"{known.file}, line {line}" if line is not None else DEFAULT if place else FOLLOWS
        found.append(Setting(path, value, where, known.origins.get(whole)))
    return found


def _place(stage: Stage, name: str) -> str:
    """Path of the recipe for a stage's setting; empty where the graph made it up."""
    kind = stage.kind
    if name == IMPORT:
        return f"imports.{stage.name}"
    if name == "source":
        return f"sources.{stage.name.removeprefix('source_')}"
    if name == "data":
        return f"stages.{stage.name.removeprefix('tokens_')}.data"
    if name in STAGE_KINDS:
        return f"stages.{_base(stage)}"
    if name == "order":
        return f"stages.{stage.name}.seeds"
    if kind.startswith("synthetic_") and name in ("seed", "step"):
        return f"synthesis.{'seed' if name == 'seed' else kind.removeprefix('synthetic_')}"
    return "evaluation.seed" if name == "seed" else _PLACES.get(name, "")


def _base(stage: Stage) -> str:
    return stage.name.partition("_seed")[0]
