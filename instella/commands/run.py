"""``instella stage NAME`` runs one stage; ``instella stages`` lists the graph."""

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from instella import numerics
from instella.artifacts.identity import lock_file
from instella.artifacts.job import Job
from instella.artifacts.runner import run_stage
from instella.commands.common import add_parser, load_project
from instella.errors import KitError
from instella.progress import Reporter


def register(subparsers: Any) -> None:
    """Add ``stage`` and ``stages``."""
    stage = add_parser(subparsers, "stage", "run one stage, or take its result from the store")
    stage.add_argument("name", metavar="STAGE")
    stage.add_argument("--log", type=Path, help="file that gets the progress lines too")
    stage.set_defaults(run=run_one)
    stages = add_parser(subparsers, "stages", "list stages, kinds and inputs")
    stages.set_defaults(run=run_list)


def run_one(args: argparse.Namespace) -> int:
    """Run one stage of the recipe."""
    project = load_project(args)
    stage = project.stage(args.name)
    numerics.apply_environment(project.recipe.numerics)
    if args.log is not None:
        args.log.parent.mkdir(parents=True, exist_ok=True)
    report = Reporter(stage.name, args.log)
    function = _guarded(stage.kind, project.recipe.numerics)
    try:
        run_stage(stage, project.graph, project.workspace, project.toolchain(), function, report)
    except KitError as error:
        if args.log is not None:
            with args.log.open("a", encoding="utf-8") as file:
                file.write(f"{error}\n")
        raise
    return 0


def _guarded(kind: str, numerics_class: str) -> Callable[[Job], None]:
    """The stage's function between two checks of the numerics class.

    Torch is checked only where the stage has loaded it; the second check comes before
    anything is published, so that a stage cannot leave the class on its way.
    """

    def function(job: Job) -> None:
        numerics.assert_versions(lock_file())
        module = importlib.import_module(f"instella.stages.{kind}")
        _assert_if_loaded(numerics_class)
        module.run(job)
        _assert_if_loaded(numerics_class)

    return function


def _assert_if_loaded(numerics_class: str) -> None:
    if "torch" in sys.modules:
        numerics.assert_active(numerics_class)


def run_list(args: argparse.Namespace) -> int:
    """Print one line a stage: name, kind, what it reads, and whether it has a result."""
    project = load_project(args)
    width = max(len(name) for name in project.graph)
    for name, stage in project.graph.items():
        state = "done" if project.workspace.manifest(name).is_file() else "-"
        inputs = ", ".join(dict.fromkeys(stage.inputs.values()))
        print(f"{name:{width}}  {stage.kind:17}  {state:4}  {inputs}".rstrip())
    return 0
