"""``instella store``: housekeeping, and results to and from elsewhere."""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from instella.artifacts.foresee import foresee
from instella.artifacts.lineage import sound_manifests
from instella.artifacts.store import Store
from instella.artifacts.store_gc import Reached, Rubbish, collect, reached_by, recipe_folders
from instella.artifacts.store_verify import verify
from instella.commands import store_remote
from instella.commands.common import Project, add_parser, load_project
from instella.errors import BadUse, VerificationError
from instella.recipe.reader import read_placement
from instella.terminal import plain

HOUR = 3600.0


def register(subparsers: Any) -> None:
    """Add ``store`` with its actions to the command line."""
    parser = subparsers.add_parser("store", help="remove what nothing reaches, rehash, push, pull")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    gc = actions.add_parser("gc", help="remove what no results folder and no recipe reaches")
    absent = argparse.SUPPRESS
    gc.add_argument("--config", type=Path, default=absent, help="placement file (config.yaml)")
    gc.add_argument("--store", default=absent, help="store folder instead of the config's")
    gc.add_argument("--debug", action="store_true", default=absent, help="show tracebacks")
    gc.add_argument(
        "--results", dest="folders", action="append", default=[], metavar="FOLDER",
        help="results folder that reaches things; may be repeated (the config's)",
    )  # fmt: skip
    gc.add_argument(
        "--recipe", dest="recipes", action="append", default=[], metavar="FILE",
        help="recipe whose next run reaches things; may be repeated (the config's)",
    )  # fmt: skip
    gc.add_argument(
        "--spare", type=_hours, default=1.0, metavar="HOURS",
        help="leave what changed within so many hours (1)",
    )  # fmt: skip
    gc.add_argument("--dry-run", "-n", action="store_true", help="only tell what would go")
    gc.set_defaults(run=run_gc)
    verifying = add_parser(actions, "verify", "rehash every object, name the bad ones")
    verifying.set_defaults(run=run_verify)
    store_remote.register(actions)


def _hours(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours from 0 on")
    return value


def run_gc(args: argparse.Namespace) -> int:
    """Remove what nothing reaches; print a line for each kind, or each thing of a dry run.

    Raises:
        BadUse: nothing is reached at all, or a results folder that uses the store is not given.
        VerificationError: a manifest is damaged, so nobody knows what it reaches.
    """
    placement = read_placement(args.config, results=args.results, store=args.store)
    store = Store(Path(placement.store))
    folders = [Path(folder) for folder in args.folders or [placement.results]]
    if not any(recipe_folders(folder) for folder in folders):
        raise BadUse(
            f"{', '.join(map(str, folders))}: no results there, so everything would be removed; "
            "give --results, or run the recipe, which takes what it can from the store"
        )
    given = {folder.resolve() for folder in folders}
    for user in store.users():
        if not given & {user, user.parent}:
            raise BadUse(
                f"{user}: its stages use this store too; give --results {user.parent} as well, or "
                "remove the folder"
            )
    projects = [
        load_project(argparse.Namespace(**{**vars(args), "recipe_file": file, "results": folder}))
        for file in args.recipes or [args.recipe_file]
        for folder in folders
    ]
    gone = collect(
        store, lambda: _reached(store, folders, projects), args.spare * HOUR, args.dry_run, _wait
    )
    if args.dry_run:
        for item in gone:
            place = plain(str(item.path.relative_to(store.root)))
            print(f"{item.kind}: {place}: {item.size} bytes")
    print("would remove" if args.dry_run else "removed", _summary(gone))
    return 0


def _reached(store: Store, folders: list[Path], projects: list[Project]) -> Reached:
    reached = reached_by(folders, store)
    for project in projects:
        manifests = sound_manifests(project.workspace.results, project.graph)
        plans = foresee(project.graph, store, project.toolchain(), manifests)
        for plan in plans.values():
            if plan.key is not None:
                reached.add_key(plan.key)
    return reached


def _summary(items: list[Rubbish]) -> str:
    if not items:
        return "nothing: everything is reached, in work or young"
    counts = Counter(item.kind for item in items)
    kinds = ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items())
    return f"{kinds}: {sum(item.size for item in items)} bytes"


def _wait() -> None:
    print("store gc: waiting for a stage that publishes", file=sys.stderr, flush=True)


def run_verify(args: argparse.Namespace) -> int:
    """Print a line for each bad object or record.

    Raises:
        VerificationError: there is one.
    """
    placement = read_placement(args.config, results=args.results, store=args.store)
    store = Store(Path(placement.store))
    damage, count = verify(store)
    for item in damage:
        print(item)
    if damage:
        raise VerificationError(
            f"{store.root}: {len(damage)} of {count} objects and their records are bad; ./kit run "
            "makes again what its results need of them"
        )
    print(f"sound: {count} objects")
    return 0
