"""What the tests of whole runs share: a run in its folder, and how to look at it."""

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from instella.artifacts.journal import host_facts
from instella.prove.copies import PROJECT
from instella.prove.finished import RecipeRun
from instella.prove.processes import Finished, instella, kit
from instella.prove.recorded import first_difference, read_recorded, recorded_file, root_of

NOTHING_TO_DO = "Nothing to be done"
# Set for the shared nano run; none of it may stand in what the run publishes.
PLANTED = {
    "HF_TOKEN": "hf_plantedTokenOfTheHub",
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDACCESSKEY",
    "AWS_SECRET_ACCESS_KEY": "planted/secret/access/key",
    "TEACHER_API_KEY": "sk-planted-key-of-a-teacher",
    "DATA_URL": "https://someone:planted-password@data.example/a?token=planted-url-token",
    "LOGNAME": "planted-user",
    "USER": "planted-user",
}


class Run(RecipeRun):
    """A clone of the project in which a recipe has run, or will."""

    def root(self) -> str:
        """What ``instella root`` prints."""
        done = instella(self.folder, "root")
        assert done.code == 0, done.err
        return done.out.strip()

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


def assert_recorded(run: RecipeRun, record_property: Callable[[str, object], None]) -> None:
    """The run's root is the one recorded beside the recipe; else the first differing stage.

    What was found goes to the last lines of the test run too, by pytest's ``record_property``.
    """
    contents = {stage: manifest.content for stage, manifest in run.manifests().items()}
    print(f"root of {run.recipe}: {run.root()}, CPU {host_facts()['cpu']}")
    path = recorded_file(PROJECT / "recipes" / f"{run.recipe}.yaml")
    if path.is_file():
        same = root_of(contents) == read_recorded(path).root
        record_property(f"root of {run.recipe}", "equal to" if same else "NOT EQUAL to")
    if not path.is_file():
        pytest.skip(f"recipes/{path.name} is not there; this run's root is {run.root()}")
    assert first_difference(read_recorded(path).contents, contents) is None


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
