"""A folder in which a recipe has run: what its stages made, and whether it is whole."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.artifacts.check import root
from instella.artifacts.identity import identity_key
from instella.artifacts.journal import FOLDER as JOURNAL
from instella.artifacts.lineage import sound_manifests
from instella.artifacts.manifest import Manifest, read_manifest
from instella.canonical import sha256_file
from instella.recipe.graph import Stage, build_graph
from instella.recipe.reader import read_recipe


@dataclass(frozen=True)
class RecipeRun:
    """A copy of the project in which a recipe has run, or will.

    Attributes:
        folder: the copy.
        recipe: name of the recipe, also of its folder of results.
        file: the recipe file, if it is not ``recipes/<recipe>.yaml`` in the copy.
    """

    folder: Path
    recipe: str
    file: Path | None = None

    @property
    def recipe_file(self) -> Path:
        return self.file or self.folder / "recipes" / f"{self.recipe}.yaml"

    @property
    def results(self) -> Path:
        return self.folder / "results" / self.recipe

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def graph(self) -> dict[str, Stage]:
        """The stages, in an order in which they can run."""
        return build_graph(read_recipe(self.recipe_file))

    def manifest(self, stage: str) -> Manifest:
        """The manifest of one stage, which must be there."""
        return read_manifest(self.results / stage / "manifest.json")

    def manifests(self) -> dict[str, Manifest]:
        """The manifests that are there, by stage in the graph's order."""
        return sound_manifests(self.results, self.graph())

    def manifest_bytes(self) -> dict[str, bytes]:
        """The manifest file of every stage that has one."""
        paths = sorted(self.results.glob("*/manifest.json"))
        return {path.parent.name: path.read_bytes() for path in paths}

    def root(self) -> str:
        """Root of the run; Incomplete if a stage has no result."""
        return root(self.results, self.graph())

    def object_path(self, stage: str, file: str) -> Path:
        """Where the store keeps the bytes of one file of an artifact."""
        digest = self.manifest(stage).files[file].sha256
        return self.store / "sha256" / digest[:2] / digest

    def forget(self, stage: str) -> None:
        """Make a stage unknown, so that the next run computes it; its bytes stay."""
        key = identity_key(self.manifest(stage).identity)
        (self.store / "actions" / key).unlink()
        (self.results / stage / "manifest.json").unlink()

    def journal(self) -> dict[str, list[dict[str, Any]]]:
        """Journal lines by stage."""
        return read_journal(self.results)

    def outcomes_since(self, before: Mapping[str, list[Any]]) -> dict[str, list[str]]:
        """Outcomes the journal has gained since it was ``before``, by stage."""
        gained = {
            stage: [entry["outcome"] for entry in entries[len(before.get(stage, [])) :]]
            for stage, entries in self.journal().items()
        }
        return {stage: outcomes for stage, outcomes in gained.items() if outcomes}


def read_journal(results: Path) -> dict[str, list[dict[str, Any]]]:
    """Journal lines of a results folder (``results/<recipe>``), by stage."""
    return {
        path.stem: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in sorted((results / JOURNAL).glob("*.jsonl"))
    }


def computed(outcomes: Mapping[str, list[str]]) -> set[str]:
    """Stages that were computed at least once."""
    return {stage for stage, found in outcomes.items() if "computed" in found}


def damaged_objects(store: Path) -> list[str]:
    """Objects of a store whose bytes do not have the hash they are named by."""
    return [
        path.name
        for path in sorted((store / "sha256").glob("*/*"))
        if sha256_file(path) != path.name
    ]


def partial_files(run: RecipeRun) -> list[str]:
    """Files that a stage shows but whose bytes are no object of the store, by path.

    Every file is shown after the store has its bytes, whenever the run was killed. Names
    with a dot in front are not shown yet.
    """
    objects = {(path.stat().st_dev, path.stat().st_ino) for path in _objects(run.store)}
    names = {path.name for path in _objects(run.store)}
    found = []
    for stage in run.graph():
        for path in sorted((run.results / stage).rglob("*")):
            hidden = path.name.startswith(".") or path.name == "manifest.json"
            if hidden or not path.is_file():
                continue
            status = path.stat()
            if (status.st_dev, status.st_ino) not in objects and sha256_file(path) not in names:
                found.append(str(path.relative_to(run.results)))
    return found


def _objects(store: Path) -> list[Path]:
    return list((store / "sha256").glob("*/*"))
