"""Figures of all training stages as TensorBoard's files, brought up to date as a run goes on.

One folder for each stage beside the journal, so neither manifests nor the root know of them.
A file is only added to, which TensorBoard needs to follow it, and what it holds already is read
from itself: whoever comes again, or was killed, goes on behind the last whole record.
"""

import fcntl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from instella.artifacts import journal
from instella.artifacts.notes import FOLDER as NOTES
from instella.canonical import read_jsonl
from instella.recipe.graph import Stage
from instella.recipe.settings import Recipe
from instella.report.events import first_event, record, records, scalars_event, step_of
from instella.report.files import MAX_BYTES, Row
from instella.report.noted import noted_rows
from instella.report.progress import Place
from instella.step_files import STEPS

FOLDER = "tensorboard"
PREFIX = "events.out.tfevents."
# of an identity key in a file's name: another identity is another training, in another file
DIGITS = 16


def folder_of(results: Path) -> Path:
    """What ``tensorboard --logdir`` takes."""
    return results / journal.FOLDER / FOLDER


def bring_up_to_date(graph: Mapping[str, Stage], place: Place, recipe: Recipe) -> dict[str, int]:
    """Add what is new of each training stage; stage to steps added, 0 where nothing was.

    A running stage's steps are those of its newest checkpoint. Nothing is waited for.

    Raises:
        VerificationError: a step log is not what the kit writes.
    """
    running, last = journal.running_keys(place.results), journal.last_keys(place.results)
    added = {}
    for name, stage in graph.items():
        key = running.get(name, last.get(name))
        if not stage.trains or key is None:
            continue
        source = _step_log(place, name, running.get(name))
        if source is None:
            continue
        target = folder_of(place.results) / name / f"{PREFIX}{key[:DIGITS]}"
        running_notes = place.store.root / "work" / key / "scratch" / NOTES
        kept = journal.notes_folder(place.results, key)
        notes = noted_rows(running_notes if name in running else kept, recipe, name)
        with suppress(FileNotFoundError):  # a checkpoint was replaced by a newer one meanwhile
            added[name] = _add(target, list(_figures(source, notes)))
    return added


def _step_log(place: Place, stage: str, key: str | None) -> Path | None:
    finished = place.results / stage / STEPS
    if key is not None:
        checkpoints = place.store.root / "work" / key / "scratch/checkpoints"
        # an unfinished one has another name; numbers have eight digits or more
        whole = sorted(
            checkpoints.glob(f"step-*/{STEPS}"), key=lambda path: int(path.parts[-2][5:])
        )
        return whole[-1] if whole else None
    return finished if finished.is_file() else None


def _figures(path: Path, notes: Sequence[Row]) -> Iterator[tuple[int, dict[str, float]]]:
    """Every step with all of its numbers, those of the notes too."""
    noted = {row["step"]: row for row in notes}
    if path.stat().st_size > MAX_BYTES:
        return
    for row in read_jsonl(path):
        step = row["step"]
        numbers: dict[str, Any] = {
            name: value
            for name, value in (noted.get(step, {}) | row).items()
            if name != "step" and type(value) in (int, float)
        }
        yield step, numbers


def _add(target: Path, steps: list[tuple[int, dict[str, float]]]) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    for other in target.parent.glob(f"{PREFIX}*"):
        if other != target:
            other.unlink(missing_ok=True)  # an earlier training of this stage
    now = time.time()
    with target.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        held = list(records(file.read()))
        # what a kill left behind the last whole record goes
        file.truncate(held[-1][0] if held else 0)
        done = step_of(held[-1][1]) if held else -1
        new = [] if done >= 0 else [first_event(now)]
        later = [(step, figures) for step, figures in steps if step > done]
        new += [scalars_event(now, step, figures) for step, figures in later]
        file.write(b"".join(map(record, new)))
    return len(later)
