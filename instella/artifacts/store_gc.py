"""Removes from a store what nothing reaches.

What is reached is named by results folders (their manifests, what their stages work on, and
the last result of a stage that has no manifest) and by recipes (what a run would take from the
store). Objects, records, work folders, code closures
and stamps go; what is younger than some time stays, and so does all that a process works on.
Bytes that a folder of results or a running stage holds by a hard link outlive their object.
"""

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from instella.artifacts import journal
from instella.artifacts.identity import identity_key
from instella.artifacts.manifest import NAME, Manifest, read_manifest
from instella.artifacts.stamps import stamp_name
from instella.artifacts.store import Store, state_of

OBJECT, RECORD, WORK, CODE, STAMP = "object", "record", "work folder", "code closure", "stamp"
QUARANTINED, UNFINISHED = "damaged object", "unfinished file"
# Stamps of installed packages: one for each, and no results folder reaches them.
PACKAGES = "packages"


@dataclass
class Reached:
    """What of a store has to stay: names of objects, records, code closures, work and stamps."""

    store: Store
    objects: set[str] = field(default_factory=set)
    records: set[str] = field(default_factory=set)
    code: set[str] = field(default_factory=set)
    work: set[str] = field(default_factory=set)
    stamps: set[str] = field(default_factory=set)

    def add_manifest(self, manifest: Manifest, view: Path | None = None) -> None:
        """A result: its record, its bytes, and what its code hash is made of.

        Args:
            manifest: of the result.
            view: folder in which the files are shown, if there is one.
        """
        self.records.add(identity_key(manifest.identity))
        self.code.add(str(manifest.identity.get("code")))
        for path, entry in manifest.files.items():
            self.objects.add(entry.sha256)
            stored = self.store.object_path(entry.sha256)
            for file in (stored, *([view / path] if view is not None else [])):
                state = state_of(file)
                if state is not None:
                    self.stamps.add(stamp_name(entry, state))

    def add_key(self, key: str) -> None:
        """An identity that is worked on or will be: its work, and its record if it has one."""
        self.work.add(key)
        manifest = self.store.action(key)
        if manifest is not None:
            self.add_manifest(manifest)


@dataclass(frozen=True)
class Rubbish:
    """Something that nothing reaches.

    Attributes:
        kind: ``object``, ``record``, ``work folder``, ``code closure``, ``stamp``,
            ``damaged object`` or ``unfinished file``.
        path: where it lies.
        size: bytes; of an object that a folder of results still shows, too.
    """

    kind: str
    path: Path
    size: int


def recipe_folders(results: Path) -> list[Path]:
    """Folders of one recipe's results in a results folder; itself if it is one."""
    inside = _entries(results)
    if any(_is_recipe_folder(folder) for folder in inside):
        return [folder for folder in inside if _is_recipe_folder(folder)]
    return [results] if _is_recipe_folder(results) else []


def _is_recipe_folder(folder: Path) -> bool:
    if (folder / NAME).is_file():
        return False
    names = _entries(folder)
    return folder / journal.FOLDER in names or any((path / NAME).is_file() for path in names)


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder, sorted; nothing if the folder is gone or none."""
    try:
        return sorted(folder / name for name in os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def reached_by(results: Iterable[Path], store: Store) -> Reached:
    """What results folders reach, each of several recipes or of one.

    Raises:
        VerificationError: a manifest is damaged, so nobody knows what it reaches.
    """
    reached = Reached(store)
    for folder in (found for each in results for found in recipe_folders(each)):
        shown = set()
        for view in _entries(folder):
            # A workflow engine takes a manifest away before the stage runs again.
            with suppress(FileNotFoundError, NotADirectoryError):
                reached.add_manifest(read_manifest(view / NAME), view)
                shown.add(view.name)
        for key in journal.running_keys(folder).values():
            reached.add_key(key)
        for stage, key in journal.last_keys(folder).items():
            if stage not in shown:
                reached.add_key(key)
    return reached


def collect(
    store: Store,
    reach: Callable[[], Reached],
    spared_seconds: float,
    dry: bool = False,
    waiting: Callable[[], None] = lambda: None,
) -> list[Rubbish]:
    """Remove what nothing reaches; what that was, or would be.

    Args:
        store: the store.
        reach: tells what is reached; called when nobody adds to the store any more.
        spared_seconds: what changed within that time stays, whoever reaches it.
        dry: only tell.
        waiting: called once if a stage that publishes has to be waited for.
    """
    with store.alone(waiting):
        reached = reach()
        before = time.time() - spared_seconds
        rubbish = []
        # A record goes before its objects: killed in between, no record lacks bytes.
        for item in (*_unreached(store, reached), *_left_over(store)):
            if _last_change(item.path) <= before:
                rubbish.append(item)
                if not dry:
                    item.path.unlink(missing_ok=True)
        return rubbish + list(_work(store, reached, before, dry))


def _work(store: Store, reached: Reached, before: float, dry: bool) -> Iterator[Rubbish]:
    """Remove work folders that nobody works in."""
    for path in _entries(store.root / "work"):
        with store.lock_if_free(path.name) as free:
            # A finished identity needs no work folder, whoever reaches it.
            finished = (store.root / "actions" / path.name).is_file()
            if not free or (path.name in reached.work and not finished):
                continue
            if not path.is_dir() or _last_change(path) > before:
                continue
            yield Rubbish(WORK, path, sum(_size(file) for file in path.rglob("*")))
            if not dry:
                shutil.rmtree(path)


def _unreached(store: Store, reached: Reached) -> Iterator[Rubbish]:
    yield from _files(RECORD, store.root.glob("actions/[!.]*"), reached.records)
    yield from _files(OBJECT, store.root.glob("sha256/*/[!.]*"), reached.objects)
    yield from _files(CODE, store.root.glob("code/[!.]*"), reached.code)
    stamps = (path for path in store.root.glob("verified/*/*") if path.parent.name != PACKAGES)
    yield from _files(STAMP, stamps, reached.stamps)


def _left_over(store: Store) -> Iterator[Rubbish]:
    yield from _files(QUARANTINED, store.root.glob("quarantine/*"), set())
    for pattern in ("tmp/*", "actions/.*", "code/.*", "results/.*"):
        yield from _files(UNFINISHED, store.root.glob(pattern), set())


def _files(kind: str, paths: Iterable[Path], kept: set[str]) -> Iterator[Rubbish]:
    for path in sorted(paths):
        if path.name not in kept and (path.is_symlink() or not path.is_dir()):
            yield Rubbish(kind, path, _size(path))


def _size(path: Path) -> int:
    state = state_of(path)
    return state.st_size if state is not None and stat.S_ISREG(state.st_mode) else 0


def _last_change(path: Path) -> float:
    """Seconds since 1970 of the last change, which the kernel tells, of a file or in a folder."""
    paths = [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]
    states = [state_of(item) for item in paths]
    return max((state.st_ctime for state in states if state is not None), default=0.0)
