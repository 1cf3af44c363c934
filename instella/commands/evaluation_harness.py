"""``instella evaluation harness``: lm-evaluation-harness on a checkpoint of a run."""

import argparse
import os
import subprocess
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes, sha256_file
from instella.commands.common import Project, add_parser, load_project
from instella.errors import BadUse, Incomplete, KitError
from instella.numerics import GPU_CLASSES

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venvs" / "harness"
LOCK = ROOT / "requirements" / "environments" / "harness.lock"
# Whatever the harness or a library of it asks the hub for fails at once.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
MOST_AT_ONCE = 4096


def register(actions: Any) -> None:
    """Add ``harness`` to the actions of ``evaluation``."""
    parser = add_parser(actions, "harness", "run lm-evaluation-harness on a checkpoint")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a stage that makes one")
    parser.add_argument(
        "--tasks", metavar="SET[,SET]", help="held-out sets (default: all of the recipe)"
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FOLDER",
        help="where records and scores go; new or empty",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=_batch, default=64, metavar="N",
        help="requests at once (64); in portable-x86 it changes no record",
    )  # fmt: skip
    parser.set_defaults(run=run)


def _batch(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MOST_AT_ONCE:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {MOST_AT_ONCE}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Write the records of each set and print the scores.

    Raises:
        BadUse: no such set, an output folder that holds something, or no environment.
        Incomplete: the checkpoint or the held-out items are not there.
        KitError: the harness failed.
    """
    project = load_project(args)
    asked = request(project, args.checkpoint, args.tasks, args.batch)
    python = environment_python(ENVIRONMENT, LOCK)
    output: Path = args.output
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise BadUse(f"{output}: holds something already; name a new folder")
    output.mkdir(parents=True, exist_ok=True)
    asked["output"] = str(output.resolve())
    command = [str(python), "-I", "-X", "utf8", "-m", "instella.evaluation.harness"]
    done = subprocess.run(
        command, input=json_bytes(asked), env={**os.environ, **OFFLINE}, cwd=output, check=False
    )
    if done.returncode:
        raise KitError(f"harness: ended with {done.returncode}; what it said stands above")
    from instella.evaluation.records import read_scores

    for name, figures in read_scores(output).items():
        for metric, found in figures.items():
            print(f"{name} {metric} {found['value']:.4f} [{found['low']:.4f}, "
                  f"{found['high']:.4f}], {found['items']} items")  # fmt: skip
    return 0


def request(project: Project, checkpoint: str, tasks: str | None, batch: int) -> dict[str, Any]:
    """What the harness's process is told; the files that it reads are those of manifests."""
    from instella.commands.seen import CHECKPOINT_KINDS, Run

    settings = project.recipe.evaluation
    names = list(settings.sets) if tasks is None else tasks.split(",")
    for name in names:
        if name not in settings.sets:
            raise BadUse(f"--tasks: no held-out set {name!r}; choose of {', '.join(settings.sets)}")
    if project.stage(checkpoint).kind not in CHECKPOINT_KINDS:
        raise BadUse(f"{checkpoint}: makes no checkpoint; see instella stages")
    if project.recipe.numerics in GPU_CLASSES:
        raise BadUse(
            f"numerics {project.recipe.numerics}: the harness asks networks on CPUs only; import the "
            "checkpoint into a recipe with native-cpu (docs/import.md)"
        )
    seen = Run(project)
    for name in (checkpoint, "heldout"):
        seen.verified(name)
    return {
        "checkpoint": str(seen.folder(checkpoint).resolve()),
        "heldout": str(seen.folder("heldout").resolve()),
        "sets": {
            name: {
                "kind": settings.sets[name].kind,
                "max_new_tokens": settings.sets[name].max_new_tokens,
            }
            for name in names
        },
        "prompt_suffix": project.recipe.prompt_suffix,
        "numerics": project.recipe.numerics,
        "batch": batch,
        "seed": settings.seed,
        "bootstrap": settings.bootstrap,
    }


def environment_python(folder: Path, lock: Path) -> Path:
    """The Python of an environment that holds what its lock says.

    Raises:
        Incomplete: it is not set up, or not since the lock changed.
    """
    python = folder / "bin" / "python"
    stamp = folder / f"{lock.stem}.stamp"
    made_of = stamp.read_text(encoding="ascii").split()[:1] if stamp.is_file() else []
    if not python.is_file() or made_of != [sha256_file(lock)]:
        raise Incomplete(f"{folder}: not set up from {lock.name}; call ./kit setup {folder.name}")
    return python
