"""``instella data fetch SOURCE``."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from instella.canonical import sha256_file
from instella.data.sources import fetch
from instella.errors import BadUse
from instella.recipe.reader import read_placement, read_recipe

CONFIG = Path("config.yaml")


def register(subparsers: Any) -> None:
    """Add ``data`` to the command line; ``args.run(args)`` gives the exit code."""
    parser = subparsers.add_parser("data", help="fetch the recipe's data and verify it")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    action = actions.add_parser("fetch", help="fetch one source and compare it with its pins")
    action.add_argument("source", metavar="SOURCE", help="name of a source in the recipe")
    action.add_argument(
        "--recipe", type=Path, help=f"recipe file (default: the one {CONFIG} names)"
    )
    action.set_defaults(run=run_fetch)


def run_fetch(args: argparse.Namespace) -> int:
    """Fetch into the downloads folder; print SHA-256, bytes and path of each file.

    Raises:
        BadUse: no such source, or a pin is missing.
        VerificationError: the data cannot be had or differs from its pin.
    """
    placement = read_placement(CONFIG)
    path = args.recipe if args.recipe is not None else Path(placement.recipe)
    recipe = read_recipe(path)
    if args.source not in recipe.sources:
        names = ", ".join(sorted(recipe.sources))
        raise BadUse(f"{path}: no source {args.source!r}; it has {names}")
    downloads = Path(placement.downloads)
    downloads.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=downloads, prefix=".check-") as temporary:
        folder = Path(temporary)
        fetch(recipe.sources[args.source], folder, downloads, path.parent, _say)
        for file in sorted(item for item in folder.rglob("*") if item.is_file()):
            name = file.relative_to(folder).as_posix()
            print(f"{sha256_file(file)} {file.stat().st_size:>12} {name}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)
