"""``instella data fetch SOURCE``."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from instella.canonical import sha256_file
from instella.commands.common import add_parser
from instella.data.sources import fetch, hub
from instella.errors import BadUse
from instella.recipe.reader import read_placement, read_recipe
from instella.recipe.settings import Recipe


def register(actions: Any) -> None:
    """Add ``fetch`` to the actions of ``data``."""
    action = add_parser(actions, "fetch", "fetch one source and compare it with its pins")
    action.add_argument("source", metavar="SOURCE", help="name of a source in the recipe")
    action.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Fetch into the downloads folder; print SHA-256, bytes and path of each file.

    Raises:
        BadUse: no such source, or a pin is missing.
        VerificationError: the data cannot be had or differs from its pin.
    """
    placement = read_placement(args.config, recipe=args.recipe_file)
    path = Path(placement.recipe)
    recipe = read_recipe(path)
    check_source(recipe, path, args.source)
    source = recipe.sources[args.source]
    downloads = Path(placement.downloads)
    downloads.mkdir(parents=True, exist_ok=True)
    if source.kind == "hub":
        # Sets of the hub may be too large to stand on the disk twice.
        files = hub.fetch(source, None, downloads, path.parent, tell, args.source)
        for name, file in files.items():
            _print(file.sha256, file.size, name)
        return 0
    with tempfile.TemporaryDirectory(dir=downloads, prefix=".check-") as temporary:
        folder = Path(temporary)
        fetch(source, folder, downloads, path.parent, tell, args.source)
        for item in sorted(found for found in folder.rglob("*") if found.is_file()):
            name = item.relative_to(folder).as_posix()
            _print(sha256_file(item), item.stat().st_size, name)
    return 0


def check_source(recipe: Recipe, path: Path, name: str) -> None:
    """BadUse, with the names that there are, unless the recipe has the source."""
    if name not in recipe.sources:
        names = ", ".join(sorted(recipe.sources))
        raise BadUse(f"{path}: no source {name!r}; it has {names}")


def tell(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr)


def _print(sha256: str, size: int, name: str) -> None:
    print(f"{sha256} {size:>12} {name}")
