"""What the tests of whole runs share: a run in its folder, and how to look at it."""

import hashlib
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness import Finished, instella, kit, read_journal
from instella.artifacts.manifest import Manifest, read_manifest
from instella.recipe.graph import Stage, build_graph
from instella.recipe.reader import read_recipe

NOTHING_TO_DO = "Nothing to be done"


@dataclass(frozen=True)
class Run:
    """A clone of the project in which a recipe has run, or will.

    Attributes:
        folder: the clone.
        recipe: name of the recipe, also of its file and of its folder of results.
    """

    folder: Path
    recipe: str

    @property
    def recipe_file(self) -> Path:
        return self.folder / "recipes" / f"{self.recipe}.yaml"

    @property
    def results(self) -> Path:
        return self.folder / "results" / self.recipe

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def graph(self) -> dict[str, Stage]:
        return build_graph(read_recipe(self.recipe_file))

    def manifest(self, stage: str) -> Manifest:
        return read_manifest(self.results / stage / "manifest.json")

    def manifest_bytes(self) -> dict[str, bytes]:
        """The manifest file of every stage that has one."""
        paths = sorted(self.results.glob("*/manifest.json"))
        return {path.parent.name: path.read_bytes() for path in paths}

    def object_path(self, stage: str, file: str) -> Path:
        """Where the store keeps the bytes of one file of an artifact."""
        digest = self.manifest(stage).files[file].sha256
        return self.store / "sha256" / digest[:2] / digest

    def root(self) -> str:
        """What ``instella root`` prints."""
        done = instella(self.folder, "root")
        assert done.code == 0, done.err
        return done.out.strip()

    def journal(self) -> dict[str, list[dict[str, Any]]]:
        return read_journal(self.results)

    def outcomes_since(self, before: Mapping[str, list[Any]]) -> dict[str, list[str]]:
        """Outcomes the journal has gained since it was ``before``, by stage."""
        gained = {
            stage: [entry["outcome"] for entry in entries[len(before.get(stage, [])) :]]
            for stage, entries in self.journal().items()
        }
        return {stage: outcomes for stage, outcomes in gained.items() if outcomes}

    def run(self, *options: str, timeout: float = 300.0) -> tuple[Finished, dict[str, list[str]]]:
        """``./kit run``, which must succeed; also the outcomes it added to the journal."""
        before = self.journal()
        done = kit(self.folder, "--cores", "2", *options, timeout=timeout)
        assert done.code == 0, done.err
        return done, self.outcomes_since(before)

    def edit_recipe(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """Load the recipe, let ``change`` alter it in place, and write it anew."""
        recipe = yaml.safe_load(self.recipe_file.read_text(encoding="utf-8"))
        change(recipe)
        self.recipe_file.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")


def computed(outcomes: Mapping[str, list[str]]) -> set[str]:
    """Stages that were computed at least once."""
    return {stage for stage, found in outcomes.items() if "computed" in found}


def copy_tree(source: Path, target: Path, *options: str) -> Path:
    """``cp`` with options; with ``-a`` links and times stay as they are."""
    subprocess.run(["cp", *options, str(source), str(target)], check=True, timeout=120)
    return target


def snapshot(*folders: Path) -> dict[str, tuple[int, str]]:
    """Path to mtime and SHA-256 of every plain file in the folders."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                found[str(path)] = (path.stat().st_mtime_ns, digest)
    return found


def assert_nothing_runs(run: Run) -> None:
    """Another ``./kit run`` finds everything done and changes no manifest and no journal."""
    before = snapshot(run.results)
    done, outcomes = run.run()
    assert NOTHING_TO_DO in done.err, done.err
    assert outcomes == {}
    assert snapshot(run.results) == before


def flip_byte(path: Path) -> None:
    """Change one byte in the middle of a file, also a read-only one, and keep its mtime."""
    times = path.stat()
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    path.chmod(0o444)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def truncate(path: Path) -> None:
    """Cut a file to half its length, also a read-only one."""
    path.chmod(0o644)
    os.truncate(path, path.stat().st_size // 2)
    path.chmod(0o444)


def damaged_objects(store: Path) -> list[str]:
    """Objects of a store whose bytes do not have the hash they are named by."""
    return [
        path.name
        for path in sorted((store / "sha256").glob("*/*"))
        if hashlib.sha256(path.read_bytes()).hexdigest() != path.name
    ]
