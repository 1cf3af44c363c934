"""``instella report`` makes the page of a run; ``instella report A B`` compares two runs."""

import argparse
import os
from pathlib import Path
from typing import Any

from instella.artifacts.places import REPORT
from instella.audit.runs import Run, open_run
from instella.commands.common import add_parser, load_project
from instella.commands.recipe import tokenized_rows
from instella.errors import BadUse, KitError
from instella.plan.plan import Assumptions, plan
from instella.recipe.published import read_published

PAIR = "compare.html"
MOST = 1e9


def register(subparsers: Any) -> None:
    """Add ``report``."""
    about = "write one HTML page of the run, or of two runs beside each other"
    parser = add_parser(subparsers, "report", about)
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN",
        help="two runs to compare: results/<recipe>, or a folder around it",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, metavar="FILE",
        help=f"file of the page (results/<recipe>/{REPORT}; for two runs {PAIR})",
    )  # fmt: skip
    parser.add_argument(
        "--watts", type=_positive, metavar="W", help="power of the machine, to calculate energy"
    )
    parser.add_argument("--price", type=_positive, metavar="P", help="price of a kWh, with --watts")
    parser.set_defaults(run=run)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def run(args: argparse.Namespace) -> int:
    """Write the page and print where it lies, its size and the hash of its content part."""
    if len(args.runs) not in (0, 2):
        raise BadUse("report: name no run for the page of this one, or two to compare them")
    if args.price is not None and args.watts is None:
        raise BadUse("report: --price is of energy: give --watts W as well")
    # templates and what reads results take half a second, which other commands spare
    from instella.report.page import content_hash

    output, page = _pair(args) if args.runs else _single(args)
    _write(output, page)
    print(f"{output}: {len(page) / 1e6:.2f} MB, content part {content_hash(page)}")
    return 0


def _single(args: argparse.Namespace) -> tuple[Path, bytes]:
    from instella.artifacts.lineage import sound_manifests
    from instella.report.content import Shown, content_of
    from instella.report.curves import read_curves
    from instella.report.execution import Rates, execution_of
    from instella.report.files import Files
    from instella.report.noted import noted_of
    from instella.report.page import render

    project = load_project(args)
    recipe, recipe_file = project.recipe, Path(project.placement.recipe)
    results = project.workspace.results
    published = read_published(recipe, recipe_file)
    figures = published.figures.figures if published else {}
    printed = {name: figure.value for name, figure in figures.items()}
    planned = plan(recipe, tokenized_rows(results, recipe, printed), Assumptions())
    content = content_of(Shown(recipe, recipe_file, project.graph, results), planned)
    manifests = sound_manifests(results, project.graph)
    volatile = execution_of(results, manifests, planned, Rates(args.watts, args.price))
    curves = read_curves(Files(results, manifests))
    volatile["noted"] = noted_of(results, manifests, curves, recipe)
    return args.output or results / REPORT, render("run.html", content, volatile)


def _pair(args: argparse.Namespace) -> tuple[Path, bytes]:
    from instella.report.page import render
    from instella.report.pair import pair_of

    name = Path(args.recipe_file).stem if args.recipe_file else None
    left, right = (
        open_run(label, folder, name, None) for label, folder in zip("AB", args.runs, strict=True)
    )
    places = {label: _place(side) for label, side in (("a", left), ("b", right))}
    return args.output or Path(PAIR), render("pair.html", pair_of(left, right), places)


def _place(run: Run) -> str:
    text = str(run.results)
    return text if text.isprintable() else ascii(text)


def _write(path: Path, data: bytes) -> None:
    """Write beside the file and rename, so that a reader never sees half a page.

    Raises:
        KitError: the folder is missing or may not be written, or something else stands there.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        reason = (error.strerror or type(error).__name__).lower()
        raise KitError(f"{path}: cannot be written ({reason}); give --output FILE") from None
