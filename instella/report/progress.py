"""How far a run is: journals, running files and logs, read while it goes on.

Nothing is written, no lock is waited for, and what changes under the reader is read again the
next time. A stage that has begun holds the lock of its identity, so a running file without a
held lock is of a stage that was broken off.
"""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.artifacts import journal
from instella.artifacts.manifest import NAME
from instella.artifacts.places import LOGS
from instella.artifacts.store import Store
from instella.progress import span
from instella.recipe.graph import Stage

FORMAT = "instella.status/1"
DONE, RUNNING, BROKEN, WAITING = "done", "running", "broken off", "waiting"
TAIL_BYTES = 64 << 10
_KEY = re.compile(r"[0-9a-f]{64}")
_STEP = re.compile(r"step ([0-9]{1,15})/([0-9]{1,15})(.*)")
_FIGURE = re.compile(r"([a-z_]{1,40}) (-?[0-9][0-9.e+-]{0,30}|nan|inf|-inf)")
_RATE = re.compile(r"([0-9][0-9,]{0,20}) tokens/s")
_LEFT = re.compile(r"((?:[0-9]{1,9} (?:h|min|s) ?){1,2}) ?left")


@dataclass(frozen=True)
class Place:
    """Where a run happens: its results and its store."""

    results: Path
    store: Store


def status_of(name: str, graph: Mapping[str, Stage], place: Place) -> dict[str, Any]:
    """Plain values: every stage with its state, what runs with its last words, and disk.

    Args:
        name: of the recipe.
        graph: its stages.
        place: results and store; may be missing.
    """
    states = states_of(graph, place)
    return {
        "format": FORMAT,
        "recipe": name,
        "stages": states,
        "done": sum(state == DONE for state in states.values()),
        "running": [
            {"stage": stage, **last_words(place.results / LOGS / f"{stage}.log", stage)}
            for stage, state in states.items()
            if state == RUNNING
        ],
        "disk": {
            "store_bytes": used_bytes(place.store.root),
            "results_bytes": used_bytes(place.results),
            "free_bytes": _free(place.store.root),
        },
    }


def states_of(graph: Mapping[str, Stage], place: Place) -> dict[str, str]:
    """Stage to its state."""
    keys = journal.running_keys(place.results)
    return {stage: _state(stage, keys.get(stage), place) for stage in graph}


def _state(stage: str, key: str | None, place: Place) -> str:
    if key is not None and _KEY.fullmatch(key):
        return RUNNING if _is_held(place.store.root / "locks" / key) else BROKEN
    return DONE if (place.results / stage / NAME).is_file() else WAITING


def _is_held(lock: Path) -> bool:
    """Whether a process holds a lock; it is let go of at once, so that none waits for us.

    Asked for alone, since shares of a stage hold it together. Where this user may not ask, the
    running file is believed.
    """
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def last_words(log: Path, stage: str) -> dict[str, Any]:
    """The last progress line of a stage's log: step, total, figures, tokens/s, time left.

    Each is None where the log does not say it; ``age`` is the seconds since the log changed.
    """
    found: dict[str, Any] = {
        "step": None, "total": None, "figures": {}, "tokens_per_second": None, "left": None,
        "age": None,
    }  # fmt: skip
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
            found["age"] = round(max(0.0, time.time() - os.fstat(file.fileno()).st_mtime), 1)
    except OSError:
        return found
    prefix = f"{stage}: "
    for line in reversed(lines):
        step = _STEP.fullmatch(line.removeprefix(prefix)) if line.startswith(prefix) else None
        if step is not None:
            return found | _words(step)
    return found


def _words(step: re.Match[str]) -> dict[str, Any]:
    rest = step[3]
    rate, left = _RATE.search(rest), _LEFT.search(rest)
    parts = [_FIGURE.fullmatch(part) for part in rest.split("  ")]
    return {
        "step": int(step[1]),
        "total": int(step[2]),
        # as text, since not a number has no JSON form
        "figures": {part[1]: part[2] for part in parts if part is not None},
        "tokens_per_second": int(rate[1].replace(",", "")) if rate else None,
        "left": left[1].strip() if left else None,
    }


def used_bytes(folder: Path) -> int:
    """Disk that a folder takes; a file with several names in it counts once.

    What goes away meanwhile is left out; links are not followed.
    """
    seen: set[tuple[int, int]] = set()
    total = 0
    for state in _states(folder):
        if state.st_nlink == 1 or (state.st_dev, state.st_ino) not in seen:
            seen.add((state.st_dev, state.st_ino))
            total += state.st_blocks * 512
    return total


def _states(folder: Path) -> Iterator[os.stat_result]:
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                        yield entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
        except (FileNotFoundError, NotADirectoryError):
            continue


def _free(folder: Path) -> int:
    folder = folder.absolute()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(place).free


def lines(value: Mapping[str, Any]) -> Iterator[str]:
    """What a person reads."""
    states = value["stages"]
    yield f"{value['recipe']}: {value['done']} of {len(states)} stages done"
    for item in value["running"]:
        yield f"  {item['stage']}: {_progress(item)}"
    for stage, state in states.items():
        if state == BROKEN:
            yield f"  {stage}: broken off; the next ./kit run goes on with it"
    left = value.get("left")
    if left is not None and value["done"] < len(states):
        more = f", {left['unknown']} stages not counted" if left["unknown"] else ""
        known = f"about {span(left['seconds'])} one stage after another, an estimate"
        yield f"left: {known if left['seconds'] else 'not known yet'}{more}"
    disk = value["disk"]
    sizes = [
        f"{disk[name] / 1e9:.2f} GB" for name in ("store_bytes", "results_bytes", "free_bytes")
    ]
    yield "disk: store {}, results {} (files of both count in each), free {}".format(*sizes)


def _progress(item: Mapping[str, Any]) -> str:
    if item["step"] is None:
        return "running, no step told yet"
    parts = [f"step {item['step']}/{item['total']}"]
    parts += [f"{name} {value}" for name, value in item["figures"].items()]
    if item["tokens_per_second"] is not None:
        parts.append(f"{item['tokens_per_second']:,} tokens/s")
    if item["left"] is not None:
        parts.append(f"{item['left']} left")
    return ", ".join(parts) + f" (told {item['age']:.0f} s ago)"
