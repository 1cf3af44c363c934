"""``instella evaluation suites|reconcile|difference|overlap|harness|judge|prompts|ttt``."""

import argparse
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instella.commands import (
    evaluation_harness,
    evaluation_judge,
    evaluation_prompts,
    evaluation_ttt,
)
from instella.commands.common import add_parser, json_line
from instella.errors import BadUse
from instella.recipe.published import Published, read_published
from instella.recipe.reader import read_placement, read_recipe
from instella.recipe.settings import Recipe

if TYPE_CHECKING:
    from instella.evaluation.suites import Suite


def register(subparsers: Any) -> None:
    """Add ``evaluation`` with its actions to the command line."""
    parser = subparsers.add_parser("evaluation", help="protocols, published scores, TTT-Bench")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    suites = add_parser(actions, "suites", "print the published protocols and what is unknown")
    suites.add_argument(
        "--command", dest="rendered", metavar="TASK[,TASK]",
        help="print the harness's command line for these tasks instead",
    )  # fmt: skip
    suites.add_argument("--suite", metavar="SUITE", help="whose tasks, if several have them")
    suites.add_argument(
        "--with", dest="values", action="append", default=[], metavar="NAME=TEXT",
        help="a value of the command line, such as model=FOLDER or output=FOLDER",
    )  # fmt: skip
    suites.add_argument(
        "--image", action="store_true",
        help="with --command: docker's command line that calls it in the harness's image; "
        "--with has model, output and hub as folders by their full paths",
    )  # fmt: skip
    suites.set_defaults(run=run_suites)
    reconcile = add_parser(actions, "reconcile", "set every published score beside ours")
    reconcile.add_argument(
        "--scores", type=Path, metavar="FILE.json",
        help="figures that another harness measured; they go before the run's",
    )  # fmt: skip
    reconcile.add_argument(
        "--overlap", type=Path, metavar="FILE.json",
        help="what `instella evaluation overlap --json` printed; adds it to the table",
    )  # fmt: skip
    reconcile.set_defaults(run=run_reconcile)
    for action in (suites, reconcile):
        action.add_argument(
            "--published", type=Path, metavar="FOLDER",
            help="published folder (default: the one that the recipe names)",
        )  # fmt: skip
        action.add_argument("--json", action="store_true", help="as one JSON object")
    difference = add_parser(actions, "difference", "left minus right on the same items")
    difference.add_argument("left", type=Path, metavar="LEFT.jsonl", help="records of a set")
    difference.add_argument("right", type=Path, metavar="RIGHT.jsonl", help="of another checkpoint")
    difference.add_argument("metric", metavar="METRIC", help="a figure that both have")
    difference.set_defaults(run=run_difference)
    overlap = add_parser(
        actions, "overlap", "held-out items in what was trained on, exact and near duplicates"
    )
    overlap.add_argument("--json", action="store_true", help="as one JSON object, for reconcile")
    overlap.set_defaults(run=run_overlap)
    evaluation_harness.register(actions)
    evaluation_judge.register(actions)
    evaluation_prompts.register(actions)
    evaluation_ttt.register(actions)


def run_overlap(args: argparse.Namespace) -> int:
    """Print how many held-out items the training data hold; see ``evaluation_overlap.run``."""
    # it loads torch, which other commands spare
    from instella.commands.evaluation_overlap import run

    return run(args)


def run_suites(args: argparse.Namespace) -> int:
    """Print each task with its protocol; one line for each fault, and 2."""
    from instella.evaluation.suites import faults, read_suites, unknowns

    _, published, folder = _published(args)
    suites = read_suites(folder)
    found = faults(suites, published)
    if found:
        raise BadUse(f"{folder}: {'; '.join(found)}")
    if args.rendered is not None:
        return _print_command(suites, args)
    if args.image:
        raise BadUse("--image: goes with --command TASK")
    if args.json:
        print(json_line({name: asdict(suite) for name, suite in suites.items()}))
        return 0
    for name, suite in suites.items():
        print(f"{name}: {suite.harness} @{suite.commit}, table {suite.table}; {suite.note}")
        for benchmark, task in suite.tasks.items():
            missing = unknowns(suite, task)
            said = f"; unknown: {', '.join(missing)}" if missing else ""
            print(f"  {benchmark}: {task.task}, {task.shots}-shot, {task.metric}, "
                  f"{task.dataset}, {task.split}, {task.items} items{said}")  # fmt: skip
    return 0


def _print_command(suites: Mapping[str, "Suite"], args: argparse.Namespace) -> int:
    """One line for a shell; which harness it belongs to stands behind a hash sign."""
    from instella.evaluation.heavy import container_line, read_harnesses, require_pinned
    from instella.evaluation.suites import command_line, image_of, suite_with

    benchmarks = tuple(args.rendered.split(","))
    suite = suite_with(suites, benchmarks, args.suite)
    values = {}
    for text in args.values:
        name, sign, value = text.partition("=")
        if not sign:
            raise BadUse(f"--with {text}: write NAME=TEXT")
        values[name] = value
    words = command_line(suite, benchmarks, values)
    said = f"{suite.harness} @{suite.commit}"
    if args.image:
        harness = read_harnesses()[image_of(suite, benchmarks)]
        image = require_pinned(harness)
        words = container_line(image, words, values, (os.getuid(), os.getgid()))
        said = f"{harness.program} @{harness.commit}"
    print(f"{shlex.join(words)}  # {said}")
    return 0


def run_reconcile(args: argparse.Namespace) -> int:
    """Print the reconciliation as Markdown or one JSON object."""
    from instella.evaluation.ours import of_file, of_run, read_measured, read_overlap
    from instella.evaluation.reconcile import Reconciliation
    from instella.evaluation.reconcile_table import markdown, plain
    from instella.evaluation.suites import read_suites

    recipe, published, folder = _published(args)
    measured = read_measured(folder)
    placement = read_placement(args.config, results=args.results)
    overlap = read_overlap(args.overlap) if args.overlap else {}
    ours = of_run(Path(placement.results) / recipe.name, measured, published.results, overlap)
    foreign = ""
    if recipe.published is None:
        foreign = f"recipe {recipe.name} is not the published one"
    if args.scores is not None:
        ours |= of_file(args.scores)
    rows = Reconciliation(published, read_suites(folder), measured, ours, foreign).rows()
    print(
        json_line(plain(rows)) if args.json else markdown(rows), end="" if not args.json else "\n"
    )
    return 0


def run_difference(args: argparse.Namespace) -> int:
    """Print the paired difference with its normal interval."""
    from instella.evaluation.compare import paired_difference
    from instella.evaluation.given import given_records
    from instella.evaluation.records import samples

    found = paired_difference(*(
        samples(given_records(path, args.metric), args.metric) for path in (args.left, args.right)
    ))  # fmt: skip
    low, high = found.interval()
    print(f"{args.metric} {found.value:+.4f} [{low:+.4f}, {high:+.4f}], {found.items} items in "
          f"{found.clusters} clusters")  # fmt: skip
    return 0


def _published(args: argparse.Namespace) -> tuple[Recipe, Published, Path]:
    """The recipe, what is published, and the folder of it."""
    path = Path(read_placement(args.config, recipe=args.recipe_file).recipe)
    recipe = read_recipe(path)
    named = recipe if args.published is None else replace(
        recipe, published=str(args.published.resolve())
    )  # fmt: skip
    published = read_published(named, path)
    if published is None or named.published is None:
        raise BadUse(f"{path}: names no published scores; add --published recipes/published")
    return recipe, published, path.parent / named.published
