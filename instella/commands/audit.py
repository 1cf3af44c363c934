"""``instella root``, ``instella audit`` and ``instella why``: questions about a run."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from instella.artifacts.check import MISSING, audit, root
from instella.artifacts.why import why
from instella.canonical import write_json
from instella.commands.common import add_parser, load_project
from instella.errors import Incomplete


def register(subparsers: Any) -> None:
    """Add ``root``, ``audit`` and ``why``."""
    parser = add_parser(subparsers, "root", "print the root hash of the run")
    parser.set_defaults(run=run_root)
    parser = add_parser(subparsers, "audit", "rehash every artifact and name each fault")
    parser.add_argument("--json", type=Path, help="file for the faults as JSON")
    parser.set_defaults(run=run_audit)
    parser = add_parser(subparsers, "why", "say why a stage would run, or why not")
    parser.add_argument("name", metavar="STAGE")
    parser.set_defaults(run=run_why)


def run_root(args: argparse.Namespace) -> int:
    """Print the root, alone on its line."""
    project = load_project(args)
    print(root(project.workspace.results, project.graph))
    return 0


def run_audit(args: argparse.Namespace) -> int:
    """Print one line a fault. 0: clean, 1: faults; Incomplete if stages are missing only."""
    project = load_project(args)
    workspace = project.workspace
    faults = audit(workspace.results, workspace.store, project.graph, project.toolchain())
    missing = [fault for fault in faults if fault.kind == MISSING]
    if args.json is not None:
        write_json(args.json, {"faults": [asdict(fault) for fault in faults]})
    for fault in faults:
        print(fault)
    if missing and len(missing) == len(faults):
        raise Incomplete(
            f"{workspace.results}: {len(missing)} of {len(project.graph)} stages have no result; "
            "the others are sound; run the recipe to its end"
        )
    if not faults:
        print(f"clean: {len(project.graph)} stages, root {root(workspace.results, project.graph)}")
    return 1 if faults else 0


def run_why(args: argparse.Namespace) -> int:
    """Print the sentence."""
    project = load_project(args)
    name = project.stage(args.name).name
    workspace = project.workspace
    print(why(name, workspace.results, workspace.store, project.graph, project.toolchain()))
    return 0
