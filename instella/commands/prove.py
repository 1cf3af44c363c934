"""``instella prove``: the same recipe under varied conditions, and a table of the roots."""

import argparse
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from instella.artifacts.journal import host_facts
from instella.canonical import write_json
from instella.commands.common import add_parser
from instella.errors import BadUse
from instella.prove.conditions import PLAIN, QUICK, SINGLE, Condition
from instella.prove.copies import PROJECT
from instella.prove.emulation import CPUS, emulated_row, row_name
from instella.prove.recorded import read_recorded, recorded_file
from instella.prove.rows import Row, Task, run_rows
from instella.prove.table import judgement, report, table
from instella.recipe.reader import read_placement, read_recipe

CUT_DOWN = PROJECT / "recipes" / "nano.yaml"
ROW_SECONDS = 7200.0


def register(subparsers: Any) -> None:
    """Add ``prove`` to the command line; ``args.run(args)`` gives the exit code."""
    parser = add_parser(subparsers, "prove", "run a recipe under varied conditions, compare roots")
    parser.add_argument("--quick", action="store_true", help="few rows, each varies several things")
    names = [condition.name for condition in (PLAIN, *SINGLE)] + [row_name(cpu) for cpu in CPUS]
    parser.add_argument(
        "--rows", metavar="A,B", help=f"only these, besides the first: {', '.join(names)}; "
        f"with --quick: {', '.join(condition.name for condition in QUICK)}",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, help="file for everything, as JSON")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="put the copies into this new folder, leave them",
    )
    parser.add_argument("--seed", type=int, help="of the moments of kills (default: drawn)")
    parser.add_argument(
        "--timeout", type=float, default=ROW_SECONDS, metavar="S", help="seconds a row may take"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table and the verdict. 0: all roots equal, 1: not, or a row failed.

    Raises:
        BadUse: an unknown row, or an option that makes no sense here.
    """
    if not args.timeout >= 1.0:
        raise BadUse(f"prove: --timeout {args.timeout:g} gives a row no time; give at least 1")
    if args.results is not None or args.store is not None:
        raise BadUse("prove: every row has results and a store of its own; leave them out")
    placement = read_placement(args.config, recipe=args.recipe_file)
    recipe_file = Path(placement.recipe).absolute()
    if args.quick and args.recipe_file is None:
        recipe_file = CUT_DOWN
    read_recipe(recipe_file)
    recorded_path = recorded_file(recipe_file)
    recorded = read_recorded(recorded_path).contents if recorded_path.is_file() else None
    conditions, cpus = chosen(args.quick, args.rows)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    with _folder(args.keep) as place:
        task = Task(
            recipe_file=recipe_file, place=place, downloads=Path(placement.downloads).absolute(),
            timeout=args.timeout, seed=seed, keep=args.keep is not None, say=_say,
        )  # fmt: skip
        rows = run_rows(task, conditions)
        rows += _emulated(task, cpus, rows[0])
        verdict = judgement(rows, recorded)
        if args.json is not None:
            write_json(args.json, report(task, rows, recorded, verdict))
    cpu = host_facts()["cpu"]
    print(table(rows))
    print(f"recipe {recipe_file.name}, seed {seed}, CPU {cpu}")
    print(verdict.text)
    return 0 if verdict.good else 1


def chosen(quick: bool, names: str | None) -> tuple[list[Condition], list[str]]:
    """Conditions, the reference first, and emulated CPUs of a choice of rows.

    Raises:
        BadUse: a name that no row has.
    """
    conditions: Sequence[Condition] = QUICK if quick else (PLAIN, *SINGLE)
    cpus = [] if quick else list(CPUS)
    if names is None:
        return list(conditions), cpus
    wanted = [name.strip() for name in names.split(",")]
    known = [condition.name for condition in conditions] + [row_name(cpu) for cpu in cpus]
    for name in wanted:
        if name not in known:
            raise BadUse(f"prove: --rows: there is no row {name!r}; choose of {', '.join(known)}")
    kept = [item for item in conditions if item is conditions[0] or item.name in wanted]
    return kept, [cpu for cpu in cpus if row_name(cpu) in wanted]


def _emulated(task: Task, cpus: list[str], first: Row) -> Iterator[Row]:
    """Rows of emulated CPUs: for the cut-down recipe, whatever the others run."""
    if not cpus:
        return
    native = first
    if task.recipe_file != CUT_DOWN:
        task = Task(**{**vars(task), "recipe_file": CUT_DOWN})
        if shutil.which("qemu-x86_64"):
            native = run_rows(task, [PLAIN])[0]
    for cpu in cpus:
        yield emulated_row(task, cpu, native)


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    """A new folder; one that nobody wants to keep is removed, also after a signal."""
    old = signal.signal(signal.SIGTERM, _interrupt)
    try:
        if kept is not None:
            if kept.exists():
                raise BadUse(f"{kept}: prove --keep needs a folder that is not there yet")
            if not kept.parent.is_dir():
                raise BadUse(f"{kept.parent}: no such folder for prove --keep; make it first")
            kept.mkdir()
            yield kept.absolute()
            return
        with tempfile.TemporaryDirectory(prefix="instella-prove-") as place:
            # Runs of other users have to get in.
            Path(place).chmod(0o755)
            yield Path(place)
    finally:
        signal.signal(signal.SIGTERM, old)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(f"prove: {text}", file=sys.stderr, flush=True)
