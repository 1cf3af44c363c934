"""``instella tensorboard``: the figures of a run for TensorBoard, also while it goes on."""

import argparse
import time
from typing import Any

from instella.commands.common import add_parser, load_project
from instella.report.progress import DONE, Place, states_of
from instella.report.tensorboard import bring_up_to_date, folder_of

EVERY_SECONDS = 5.0


def register(subparsers: Any) -> None:
    """Add ``tensorboard``."""
    parser = add_parser(subparsers, "tensorboard", "write TensorBoard's files beside the journal")
    parser.add_argument(
        "--watch", action="store_true", help=f"again every {EVERY_SECONDS:g} s, until all is done"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write what is new and say how to look at it; with ``--watch`` until every stage is done."""
    project = load_project(args)
    place = Place(project.workspace.results, project.workspace.store)
    while True:
        # asked before, so that what a stage wrote at its end is not missed
        done = all(state == DONE for state in states_of(project.graph, place).values())
        added = bring_up_to_date(project.graph, place, project.recipe)
        if any(added.values()) or done or not args.watch:
            said = f"{sum(added.values())} steps added of {len(added)} stages"
            print(f"{said}; tensorboard --logdir {folder_of(place.results)}", flush=True)
        if done or not args.watch:
            return 0
        time.sleep(EVERY_SECONDS)
