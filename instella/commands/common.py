"""What several commands share: common options, and the recipe they point to."""

import argparse
import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.artifacts.identity import Toolchain
from instella.artifacts.job import Job
from instella.artifacts.store import Store
from instella.artifacts.workspace import Workspace
from instella.canonical import json_bytes
from instella.containers.images import image_name, locked, read_images, stage_images
from instella.errors import BadUse
from instella.recipe.graph import Stage, build_graph
from instella.recipe.reader import read_placement, read_recipe
from instella.recipe.settings import Placement, Recipe


@dataclass(frozen=True)
class Project:
    """A recipe with its graph and its place."""

    recipe: Recipe
    placement: Placement
    graph: dict[str, Stage]
    workspace: Workspace

    def stage(self, name: str) -> Stage:
        """The stage called ``name``; BadUse with similar names if there is none."""
        if name in self.graph:
            return self.graph[name]
        near = difflib.get_close_matches(name, self.graph, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "see instella stages"
        raise BadUse(f"{name}: no stage of recipe {self.recipe.name} has this name; {hint}")

    def toolchain(self) -> Toolchain:
        """The toolchain of the running package for the recipe's numerics class."""
        cache = self.workspace.store.root / "cache"
        chosen = self.recipe.numerics
        images = stage_images(self.graph, chosen, self.placement.container)
        return Toolchain.here(chosen, images, cache)

    def contained(self, stage: Stage) -> Callable[[Job], None] | None:
        """The stage's code in its container on this machine; None where it runs on the host.

        Raises:
            BadUse: its image is not there, or has no digest yet.
        """
        container = self.placement.container
        image = image_name(stage, self.recipe.numerics, container)
        if image is None:
            return None
        # the engine's library takes a third of a second to load, which other stages spare
        from instella.containers.engines import in_container

        recipe_file = Path(self.placement.recipe)
        chosen = locked(read_images(), image)
        return in_container(recipe_file, chosen, container, self.workspace.downloads)


def add_parser(subparsers: Any, name: str, help_text: str) -> argparse.ArgumentParser:
    """A subcommand that takes the common options behind its name too."""
    parser: argparse.ArgumentParser = subparsers.add_parser(name, help=help_text)
    absent = argparse.SUPPRESS
    parser.add_argument("--config", type=Path, default=absent, help="placement file (config.yaml)")
    parser.add_argument(
        "--recipe", dest="recipe_file", default=absent, help="recipe file instead of the config's"
    )
    parser.add_argument("--results", default=absent, help="results folder instead of the config's")
    parser.add_argument("--store", default=absent, help="store folder instead of the config's")
    parser.add_argument("--debug", action="store_true", default=absent, help="show tracebacks")
    return parser


def load_project(args: argparse.Namespace) -> Project:
    """Read placement and recipe named by the common options."""
    placement = read_placement(
        args.config, recipe=args.recipe_file, results=args.results, store=args.store
    )
    recipe_file = Path(placement.recipe)
    recipe = read_recipe(recipe_file)
    workspace = Workspace(
        results=Path(placement.results) / recipe.name,
        store=Store(Path(placement.store)),
        downloads=Path(placement.downloads),
        recipe_folder=recipe_file.parent,
        ranks=placement.ranks,
        workers=placement.workers,
        sharding=placement.sharding,
        checkpoints=placement.checkpoints,
    )
    return Project(recipe, placement, build_graph(recipe), workspace)


def refuse_output(file: Path | None) -> None:
    """Refuse a file that cannot be written, before anything is computed for it.

    Raises:
        BadUse: it is a folder, or lies in none.
    """
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise BadUse(f"{file}: a folder, or in a folder that is not there; name a file")


def json_line(value: Any) -> str:
    """Canonical JSON to print: one line, without its end."""
    return json_bytes(value).decode("utf-8").rstrip("\n")
