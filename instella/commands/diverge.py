"""``instella diverge A B`` and ``instella diff A B``: two runs, and where they part."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from instella.audit.replay import CPU_HOURS
from instella.audit.runs import Run, open_run
from instella.canonical import write_json
from instella.commands.common import add_parser, refuse_output
from instella.errors import BadUse
from instella.progress import Reporter

MAX_HOURS = 1e6


def register(subparsers: Any) -> None:
    """Add ``diverge`` and ``diff``."""
    about = "lead to the first differing number of two runs, and to its cause"
    parser = _with_runs(subparsers, "diverge", about)
    parser.add_argument(
        "--no-replay", action="store_true", help="do not run the differing step again"
    )
    parser.add_argument(
        "--cpu-hours", type=float, default=CPU_HOURS, metavar="H",
        help=f"limit of each run of the step (default: {CPU_HOURS:g})",
    )  # fmt: skip
    parser.set_defaults(run=run_diverge)
    about = "settings, data, code, lock and results of two runs, side by side"
    _with_runs(subparsers, "diff", about).set_defaults(run=run_diff)


def _with_runs(subparsers: Any, name: str, about: str) -> argparse.ArgumentParser:
    parser = add_parser(subparsers, name, about)
    for label in ("A", "B"):
        parser.add_argument(
            label.lower(), type=Path, metavar=label, help="results/<recipe>, or a folder around it"
        )
        parser.add_argument(
            f"--store-{label.lower()}", type=Path, help=f"store of {label} (default: beside it)"
        )
    parser.add_argument("--json", type=Path, help="file for the answer as canonical JSON")
    return parser


def _open(args: argparse.Namespace) -> tuple[Run, Run]:
    recipe = Path(args.recipe_file).stem if args.recipe_file else None
    return (
        open_run("A", args.a, recipe, args.store_a),
        open_run("B", args.b, recipe, args.store_b),
    )


def run_diverge(args: argparse.Namespace) -> int:
    """Print the trail to the first difference. 0: equal, 1: not."""
    # imported here: comparators load numpy, which no other command may load so early
    from instella.audit import diverge as trails
    from instella.audit.rerun_step import replay_step

    if not 0 < args.cpu_hours < MAX_HOURS:
        raise BadUse(f"diverge: --cpu-hours {args.cpu_hours}: give more than 0, in hours")
    refuse_output(args.json)
    left, right = _open(args)
    chosen = partial(replay_step, report=Reporter("diverge"), cpu_hours=args.cpu_hours)
    replay = None if args.no_replay else chosen
    found = trails.diverge(left, right, replay)
    if args.json is not None:
        write_json(args.json, trails.as_json(found))
    for line in trails.lines(found):
        print(line)
    return 1 if found.differing else 0


def run_diff(args: argparse.Namespace) -> int:
    """Print what differs, section by section. Always 0, unless the runs cannot be read."""
    from instella.audit import difference as sides

    refuse_output(args.json)
    left, right = _open(args)
    found = sides.difference(left, right)
    if args.json is not None:
        write_json(args.json, sides.as_json(left, right, found))
    for line in sides.lines(left, right, found):
        print(line)
    return 0
