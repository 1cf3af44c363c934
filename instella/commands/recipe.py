"""``instella recipe show|check|deviations [RECIPE]``."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes
from instella.commands.common import add_parser
from instella.recipe.derived import check_tokens, parameter_count, trained_tokens
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_placement, read_recipe


def register(subparsers: Any) -> None:
    """Add ``recipe`` with its actions to the command line."""
    parser = subparsers.add_parser("recipe", help="show or check a recipe")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = add_parser(actions, "show", "print every setting, defaults included")
    show.add_argument("--json", action="store_true", help="as one JSON object")
    show.set_defaults(run=run_show)
    check = add_parser(actions, "check", "check a recipe and say what it amounts to")
    check.set_defaults(run=run_check)
    deviations = add_parser(actions, "deviations", "print where it differs from the publication")
    deviations.set_defaults(run=run_deviations)
    for action in (show, check, deviations):
        action.add_argument(
            "recipe", nargs="?", type=Path, metavar="RECIPE",
            help="recipe file (default: the one the placement file names)",
        )  # fmt: skip


def run_show(args: argparse.Namespace) -> int:
    """Print ``path = value`` lines (values as JSON), or one JSON object."""
    values = asdict(read_recipe(_path(args)))
    if args.json:
        print(_json(values))
        return 0
    for path, value in flatten(values):
        print(f"{path} = {_json(value)}")
    return 0


def run_check(args: argparse.Namespace) -> int:
    """Print one line about a good recipe; a bad one raises BadUse."""
    path = _path(args)
    recipe = read_recipe(path)
    check_tokens(recipe)
    parts = [
        f"{parameter_count(recipe.model):,} parameters",
        f"{len(build_graph(recipe))} stages",
        f"{len(recipe.sources)} sources",
        f"{len(recipe.deviations)} deviations",
    ]
    for name in ("pretrain_stage1", "pretrain_stage2"):
        tokens = trained_tokens(getattr(recipe.stages, name))
        if tokens is not None:
            parts.append(f"{name} {tokens:,} tokens")
    print(f"{path}: good: {', '.join(parts)}")
    return 0


def run_deviations(args: argparse.Namespace) -> int:
    """Print the recipe's deviations, one a line."""
    for deviation in read_recipe(_path(args)).deviations:
        print(" ".join(deviation.split()))
    return 0


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested dicts and lists as ``a.b[0].c`` and value; empty ones are leaves."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flatten(item, f"{path}.{key}" if path else key)
    elif isinstance(value, (list, tuple)) and value:
        for index, item in enumerate(value):
            yield from flatten(item, f"{path}[{index}]")
    else:
        yield path, value


def _path(args: argparse.Namespace) -> Path:
    if args.recipe is not None:
        return Path(args.recipe)
    return Path(read_placement(args.config, recipe=args.recipe_file).recipe)


def _json(value: Any) -> str:
    return json_bytes(value).decode("utf-8").rstrip("\n")
