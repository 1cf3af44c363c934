"""``instella export``: a finished run in other people's formats."""

import argparse
import math
from pathlib import Path
from typing import Any

from instella.artifacts.identity import PACKAGE_FOLDER
from instella.canonical import write_bytes
from instella.commands.common import add_parser, load_project
from instella.errors import BadUse
from instella.exports.finished import Finished, read_finished

PROJECT = PACKAGE_FOLDER.parent


def register(subparsers: Any) -> None:
    """Add ``export`` with its kinds to the command line."""
    parser = subparsers.add_parser("export", help="write the run as RO-Crate, SBOM or model card")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    crate = add_parser(kinds, "ro-crate", "the whole run as Workflow Run RO-Crate")
    crate.set_defaults(run=run_crate)
    packages = add_parser(kinds, "sbom", "packages of each environment, CycloneDX")
    packages.set_defaults(run=run_sbom)
    models = add_parser(kinds, "ml-bom", "what each model is made of, CycloneDX")
    models.set_defaults(run=run_models)
    cards = add_parser(kinds, "model-card", "README.md of the final checkpoints")
    cards.add_argument(
        "--watts", type=_watts, metavar="W",
        help="power of the machine while it trains, to compute energy from (none is told)",
    )  # fmt: skip
    cards.set_defaults(run=run_cards)
    for parser in (models, cards):
        parser.add_argument(
            "names", nargs="*", metavar="CHECKPOINT", help="of these (cards: the final ones)"
        )
    for parser in (crate, packages, models, cards):
        parser.add_argument(
            "--output", type=Path, required=True, metavar="FOLDER", help="new or empty folder"
        )


def _watts(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 < value <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a power in watts")
    return value


def run_crate(args: argparse.Namespace) -> int:
    """Write the crate.

    Raises:
        BadUse: the folder is not empty.
        Incomplete, VerificationError: as ``read_finished`` and ``write_crate``.
    """
    # imported here: other commands do not pay for it
    from instella.exports.crate import write_crate

    run = _finished(args)
    folder = _empty(args.output)
    count = write_crate(run, folder, PROJECT)
    print(f"{folder}: {count} entities, root {run.root}")
    return 0


def run_sbom(args: argparse.Namespace) -> int:
    """Write one file for each environment that a lock in ``requirements`` describes."""
    from instella.exports.bom import SUFFIX, environments, software

    folder = _empty(args.output)
    for name, lock in environments(PROJECT / "requirements").items():
        _write(folder / f"{name}{SUFFIX}", software(name, lock))
    return 0


def run_models(args: argparse.Namespace) -> int:
    """Write one file for each checkpoint."""
    from instella.exports.bom import SUFFIX, model

    run = _finished(args)
    names = _checkpoints(run, args.names) or run.checkpoints()
    folder = _empty(args.output)
    for name in names:
        _write(folder / f"{name}{SUFFIX}", model(run, name))
    return 0


def run_cards(args: argparse.Namespace) -> int:
    """Write ``CHECKPOINT/README.md`` for each one."""
    from instella.exports.card import card

    run = _finished(args)
    names = _checkpoints(run, args.names) or run.final()
    folder = _empty(args.output)
    for name in names:
        (folder / name).mkdir()
        _write(folder / name / "README.md", card(run, name, args.watts).encode("utf-8"))
    return 0


def _finished(args: argparse.Namespace) -> Finished:
    project = load_project(args)
    return read_finished(
        project.recipe, Path(project.placement.recipe), project.graph, project.workspace.results,
        project.workspace.store,
    )  # fmt: skip


def _checkpoints(run: Finished, names: list[str]) -> tuple[str, ...]:
    for name in names:
        if name not in run.checkpoints():
            raise BadUse(
                f"{name}: no checkpoint of this run; give some of {', '.join(run.checkpoints())}"
            )
    return tuple(names)


def _empty(folder: Path) -> Path:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadUse(f"{folder}: not an empty folder; give a new one, nothing is replaced")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(path: Path, data: bytes) -> None:
    write_bytes(path, data)
    print(path)
