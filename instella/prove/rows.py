"""Runs a recipe once for each condition, in a copy of the project with a store of its own."""

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from instella.artifacts.manifest import Manifest
from instella.canonical import write_json
from instella.errors import KitError
from instella.prove.conditions import PLAIN, Condition, possible
from instella.prove.copies import PROJECT, copy_project, share_archives
from instella.prove.finished import RecipeRun, computed
from instella.prove.processes import Finished, kill_tree, run, start
from instella.prove.recorded import first_different_file, root_of
from instella.recipe.reader import read_recipe

EQUAL, DIFFERS, FAILED, NOT_RUN = "equal", "DIFFERS", "FAILED", "not run"
FIRST_KILL_SPAN = 60.0


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: of the condition.
        varied: what was varied, in words.
        status: ``equal``, ``DIFFERS``, ``FAILED`` or ``not run``.
        why: the first differing stage and file, what failed, or why it was not run.
        seconds: wall time of the run.
        folder: copy in which it ran.
        manifests: what was made, by stage in the graph's order; empty if it did not end.
    """

    name: str
    varied: str
    status: str
    why: str = ""
    seconds: float = 0.0
    folder: Path | None = None
    manifests: Mapping[str, Manifest] = field(default_factory=dict)

    @property
    def contents(self) -> dict[str, str]:
        """Stage to content, in the graph's order."""
        return {stage: manifest.content for stage, manifest in self.manifests.items()}

    @property
    def root(self) -> str | None:
        """Root of the run, or None if it did not come to its end."""
        return root_of(self.contents) if self.manifests else None


@dataclass(frozen=True)
class Task:
    """What is the same for all rows.

    Attributes:
        recipe_file: absolute path of the recipe.
        place: folder for the copies.
        downloads: folder of the project's archives.
        timeout: seconds that one row may take.
        seed: of the moments of kills.
        keep: leave the copies that are no longer needed.
        say: told about each row in one line.
    """

    recipe_file: Path
    place: Path
    downloads: Path
    timeout: float
    seed: int
    keep: bool
    say: Callable[[str], None]


def run_rows(task: Task, conditions: Iterable[Condition]) -> list[Row]:
    """A row for each condition, and one for each part of it that this machine cannot make.

    The first row that comes to its end is what the others are compared with.
    """
    rows: list[Row] = []
    first: Row | None = None
    for wanted in conditions:
        condition, reasons = possible(wanted)
        rows += [
            Row(wanted.name if str(condition) == str(PLAIN) else f"{wanted.name}: {part}",
                f"{part} {getattr(wanted, part)}", NOT_RUN, why)
            for part, why in reasons.items()
        ]  # fmt: skip
        if reasons and str(condition) == str(PLAIN):
            continue
        task.say(f"{condition.name}: {condition}")
        row = _run_row(task, condition, first)
        rows.append(row)
        if first is None and row.manifests:
            first = row
        elif row.folder is not None and not task.keep:
            shutil.rmtree(row.folder.parent)
        task.say(f"{row.name}: {row.status} {row.why} after {row.seconds:.0f} s")
    return rows


def _run_row(task: Task, condition: Condition, first: Row | None) -> Row:
    name = condition.name
    if condition.warm and (first is None or first.folder is None):
        return Row(name, str(condition), NOT_RUN, "no earlier row came to its end")
    folder = task.place / f"{len(list(task.place.iterdir()))}" / condition.folder
    folder.parent.mkdir()
    started = time.monotonic()
    try:
        done = _run_in(task, condition, folder, first)
        outcome = _judge(task, condition, folder, first, done)
    except (KitError, TimeoutError) as error:
        outcome = (FAILED, str(error).splitlines()[0], {})
    status, why, manifests = outcome
    seconds = time.monotonic() - started
    return Row(name, str(condition), status, why, seconds, folder, manifests)


def copy_of(folder: Path, recipe_file: Path) -> RecipeRun:
    """The run of a recipe in a copy of the project."""
    inside = recipe_file.is_relative_to(PROJECT)
    file = folder / recipe_file.relative_to(PROJECT) if inside else recipe_file
    return RecipeRun(folder, read_recipe(recipe_file).name, file)


def make_copy(task: Task, folder: Path, condition: Condition) -> RecipeRun:
    """A copy of the project, ready to run the recipe with a store and results of its own."""
    copy = copy_of(folder, task.recipe_file)
    recipe = str(copy.recipe_file)
    copy_project(folder, recipe, condition.python_variables())
    placement = {name: name for name in ("results", "store", "downloads")}
    numbers = {"ranks": condition.ranks, "workers": condition.workers}
    # JSON is YAML too.
    write_json(folder / "config.yaml", {"recipe": recipe, **placement, **numbers})
    share_archives(task.downloads, folder / "downloads")
    return copy


def _run_in(task: Task, condition: Condition, folder: Path, first: Row | None) -> Finished:
    make_copy(task, folder, condition)
    if condition.warm and first is not None and first.folder is not None:
        shutil.copytree(first.folder / "store", folder / "store")
    if condition.user is not None:
        _give(folder, condition.user)
    command = [*condition.prefix(), "./kit", "run", "--cores", str(condition.cores)]
    umask = -1 if condition.umask is None else condition.umask
    span = first.seconds if first is not None else FIRST_KILL_SPAN
    moments = random.Random(f"{task.seed} {condition.name}")
    for _ in range(condition.kills):
        _kill_after(command, folder, condition, moments.uniform(0.0, span))
    done = run(command, folder, task.timeout, condition.environment(), umask)
    share_archives(folder / "downloads", task.downloads)
    return done


def _give(folder: Path, user: int) -> None:
    """Make a user the owner of a copy; archives, which have other names too, stay as they are."""
    for place, _, files in os.walk(folder):
        os.chown(place, user, user)
        if Path(place) != folder / "downloads":
            for name in files:
                os.chown(Path(place, name), user, user, follow_symlinks=False)


def _kill_after(command: list[str], folder: Path, condition: Condition, seconds: float) -> None:
    """Start a command and end it with all that it started after so many seconds."""
    umask = -1 if condition.umask is None else condition.umask
    with tempfile.TemporaryFile("w+b") as log:
        process = start(command, folder, log, log, condition.environment(), umask)
        deadline = time.monotonic() + seconds
        try:
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            kill_tree(process)


def _judge(
    task: Task, condition: Condition, folder: Path, first: Row | None, done: Finished
) -> tuple[str, str, Mapping[str, Manifest]]:
    if done.code:
        return FAILED, _last_words(done), {}
    finished = copy_of(folder, task.recipe_file)
    manifests = finished.manifests()
    missing = [stage for stage in finished.graph() if stage not in manifests]
    if missing:
        return FAILED, f"{missing[0]}: no result although the run ended well", {}
    again = computed(finished.outcomes_since({}))
    if condition.warm and again:
        return FAILED, f"{sorted(again)[0]}: computed although the store had its result", {}
    difference = first_different_file(first.manifests, manifests) if first is not None else None
    return (DIFFERS, difference, manifests) if difference else (EQUAL, "", manifests)


def _last_words(done: Finished) -> str:
    """The line of a failed run that says most, and its exit status."""
    lines = [line.strip() for line in (done.err + done.out).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(("instella: ", "kit: ", "Error: "))]
    return f"status {done.code}: {[*lines[-1:], *ours[:1]][-1] if lines else 'nothing printed'}"
