"""``instella status``: how far a run is, also while it goes on."""

import argparse
import sys
import time
from typing import Any

from instella.commands.common import add_parser, json_line, load_project
from instella.commands.recipe import tokenized_rows
from instella.plan.plan import Assumptions, plan
from instella.report.progress import DONE, Place, lines, status_of
from instella.report.remaining import remaining

EVERY_SECONDS = 2.0


def register(subparsers: Any) -> None:
    """Add ``status``."""
    parser = add_parser(subparsers, "status", "say how far the run is, and what it is doing")
    parser.add_argument(
        "--watch", action="store_true", help=f"again every {EVERY_SECONDS:g} s, until all is done"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object a line")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the state of the run; with ``--watch`` until every stage is done."""
    project = load_project(args)
    place = Place(project.workspace.results, project.workspace.store)
    while True:
        value = status_of(project.recipe.name, project.graph, place)
        rows = tokenized_rows(place.results, project.recipe, {})
        planned = plan(project.recipe, rows, Assumptions())
        left = remaining(project.graph, value["stages"], place.results, planned)
        value["left"] = {"seconds": round(left.seconds, 1), "unknown": left.unknown}
        text = json_line(value) if args.json else "\n".join(lines(value))
        if args.watch and not args.json and sys.stdout.isatty() and sys.__stdout__ is not None:
            # past the filter of foreign text: this is ours
            sys.__stdout__.write("\x1b[H\x1b[2J")
        print(text, flush=True)
        if not args.watch or all(state == DONE for state in value["stages"].values()):
            return 0
        time.sleep(EVERY_SECONDS)
