"""``instella data lock SOURCE``: pin what the hub holds, and say what changed."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.canonical import parse_json, write_bytes
from instella.commands.common import add_parser
from instella.commands.data_fetch import check_source, tell
from instella.data.sources.checks import beside
from instella.data.sources.hub_changes import changes
from instella.data.sources.hub_lock import Lock, lock_bytes, parse_lock, read_lock
from instella.errors import BadUse
from instella.recipe.reader import read_placement, read_recipe
from instella.recipe.settings import Recipe, Source

FOLDER = "locks"


@dataclass(frozen=True)
class _Target:
    """One lock to make: the sources that share it have one repository and type."""

    file: Path
    named: str
    sources: dict[str, Source]

    @property
    def first(self) -> Source:
        return next(iter(self.sources.values()))

    @property
    def patterns(self) -> tuple[str, ...]:
        """All patterns of the sources; everything when one of them wants everything."""
        if any(not source.files for source in self.sources.values()):
            return ("*",)
        return tuple(sorted({item for source in self.sources.values() for item in source.files}))


def register(actions: Any) -> None:
    """Add ``lock`` to the actions of ``data``."""
    action = add_parser(actions, "lock", "pin a hub source's files, and say what changed")
    action.add_argument(
        "source", metavar="SOURCE", help="name of a hub source in the recipe, or owner/name"
    )
    action.add_argument(
        "--revision", help="branch, tag or commit (default: main, the newest)", default="main"
    )
    action.add_argument("--out", type=Path, help="lock file instead of the recipe's")
    action.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 when something changed"
    )
    action.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the lock that the source uses, and print what is new in it.

    One lock serves all sources of the recipe with the same repository and lock file, and
    holds the files that any of them wants.

    Raises:
        BadUse: no such source, or not one of the hub.
        KitError: the hub cannot be read.
    """
    placement = read_placement(args.config, recipe=args.recipe_file)
    path = Path(placement.recipe)
    target = _target(read_recipe(path), path, args.source, args.out)
    old = read_lock(target.file) if target.file.exists() else None
    new = _make(target, args.revision, Path(placement.downloads), old)
    found = changes(old, new)
    for line in found:
        print(line)
    if not found:
        print(f"{target.file}: nothing changed, commit {new.commit}")
    if args.check:
        return 1 if found else 0
    if found:
        _write(target.file, new)
        print(f"wrote {target.file}")
    _print_pins(target, new, path)
    return 0


def _make(target: _Target, revision: str, downloads: Path, old: Lock | None) -> Lock:
    from instella.data.sources.hub_listing import make_lock

    source = target.first
    same = old is not None and old.repository == source.repository
    return make_lock(
        str(source.repository),
        source.repository_type,
        revision,
        target.patterns,
        downloads,
        tell,
        old if same else None,
    )


def _target(recipe: Recipe, path: Path, name: str, out: Path | None) -> _Target:
    """The lock file of a source or repository, with all sources that share it.

    Raises:
        BadUse: no such source, not one of the hub, or a lock outside the recipe's folder.
    """
    hub = {key: source for key, source in recipe.sources.items() if source.kind == "hub"}
    if "/" in name:
        asked = next((source for source in hub.values() if source.repository == name), None)
        if asked is None:
            raise BadUse(f"{path}: no source has the repository {name!r}")
    else:
        check_source(recipe, path, name)
        if name not in hub:
            kind = recipe.sources[name].kind
            raise BadUse(f"{path}: source {name} is of kind {kind}; only the hub's need a lock")
        asked = hub[name]
    sharing = {
        key: source for key, source in hub.items()
        if (source.repository, source.repository_type, source.lock)
        == (asked.repository, asked.repository_type, asked.lock)
    }  # fmt: skip
    # A model and a data set may have one name, and a name may hold any other separator.
    named = asked.lock or f"{FOLDER}/{asked.repository_type}/{asked.repository}.json"
    file = out if out is not None else beside(path.parent, named, f"{name}: lock")
    return _Target(file, named, sharing)


def _write(file: Path, lock: Lock) -> None:
    """Replace the lock file in one step; what is written is what reading accepts."""
    data = lock_bytes(lock)
    parse_lock(parse_json(data, str(file)), str(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    write_bytes(temporary, data)
    os.replace(temporary, file)


def _print_pins(target: _Target, lock: Lock, recipe: Path) -> None:
    """Say what the recipe has to name, when it does not yet."""
    stale = [
        name
        for name, source in target.sources.items()
        if (source.revision, source.lock) != (lock.commit, target.named)
    ]
    if stale:
        print(f"in {recipe}, set for {', '.join(stale)}:")
        print(f"    revision: {lock.commit}")
        print(f"    lock: {target.named}")
