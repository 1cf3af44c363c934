"""``instella import FOLDER --as STAGE``: start from a published checkpoint."""

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instella.commands.common import Project, add_parser, load_project
from instella.errors import BadUse, Incomplete
from instella.recipe.fields import suggestion
from instella.recipe.graph import checkpoints

if TYPE_CHECKING:
    from instella.data.sources.hub_lock import Lock
    from instella.importing.take import Taken

WANTED = (".json", ".jinja", ".safetensors")


def register(subparsers: Any) -> None:
    """Add ``import``."""
    parser = add_parser(subparsers, "import", "take a published checkpoint in as a stage's result")
    parser.add_argument(
        "folder", metavar="FOLDER", type=Path, nargs="?", help="a Hugging Face folder"
    )
    parser.add_argument(
        "--lock", type=Path, metavar="FILE",
        help="lock of the model's repository: FOLDER is compared with it, or fetched without one",
    )  # fmt: skip
    parser.add_argument("--as", dest="stage", metavar="STAGE", help="checkpoint it stands for")
    parser.add_argument("--remove", metavar="STAGE", help="take an import out of the recipe")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the folder, keep it in the store, and name it in the recipe.

    Raises:
        BadUse: options that do not fit, or a recipe that cannot have the import.
        Incomplete: the recipe's tokenizer has no result to compare with.
        VerificationError: the folder is not what it should be.
    """
    if args.remove is not None:
        if args.stage is not None or args.folder is not None or args.lock is not None:
            raise BadUse("import: --remove goes with no folder, no lock and no --as")
        return _remove(load_project(args), args.remove)
    if args.stage is None:
        raise BadUse("import: say with --as which stage it stands for; see instella stages")
    if args.folder is None and args.lock is None:
        raise BadUse("import: name a folder, or a lock with --lock")
    return _take(load_project(args), args)


def _remove(project: Project, stage: str) -> int:
    from instella.importing.recipe_file import write_entry

    file = Path(project.placement.recipe)
    if stage not in (project.recipe.imports or {}):
        raise BadUse(f"import: --remove {stage!r}: {file} has no such stage among its imports")
    write_entry(file, stage, None)
    print(f"{file}: {stage} is a stage of the recipe again")
    return 0


def _take(project: Project, args: argparse.Namespace) -> int:
    from instella.data.sources.hub_lock import read_lock
    from instella.importing.recipe_file import check_entry, write_entry
    from instella.importing.take import PLACEHOLDER

    file, stage = Path(project.placement.recipe), args.stage
    known = checkpoints(project.recipe)
    if stage not in known:
        hint = suggestion(stage, known) if stage else f"name one of {', '.join(known)}"
        raise BadUse(f"import: --as {stage!r} is not a checkpoint of the recipe; {hint}")
    if args.lock is not None and not args.lock.is_file():
        raise BadUse(f"{args.lock}: no such lock file")
    lock = read_lock(args.lock) if args.lock is not None else None
    check_entry(file, stage, PLACEHOLDER)
    _require_tokenizer(project)
    if args.folder is not None:
        taken = _take_in(project, stage, args.folder, lock)
    else:
        taken = _fetch_and_take_in(project, stage, lock)
    old = (project.recipe.imports or {}).get(stage)
    if old != taken.item:
        write_entry(file, stage, taken.item)
    for line in _report(stage, taken, project):
        print(line)
    if old is not None and old.content != taken.item.content:
        print(f"it replaces the import of content {old.content}")
    return 0


def _require_tokenizer(project: Project) -> None:
    path = project.workspace.manifest("tokenizer")
    if not path.is_file():
        raise Incomplete(
            f"import: the recipe's tokenizer, which a checkpoint is compared with, has no result "
            f"yet; make it with `./kit run {path} --config recipe={project.placement.recipe}`"
        )


def _take_in(project: Project, stage: str, folder: Path, lock: "Lock | None") -> "Taken":
    from instella.importing.take import take_in

    return take_in(project.recipe, stage, folder, project.workspace, project.toolchain(), lock)


def _fetch_and_take_in(project: Project, stage: str, lock: Any) -> "Taken":
    from instella.commands.data_fetch import tell
    from instella.data.sources.hub_download import fetch_repository

    names = [name for name in lock.files if "/" not in name and name.endswith(WANTED)]
    downloads = project.workspace.downloads
    downloads.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=downloads, prefix=".import-") as temporary:
        folder = Path(temporary)
        fetch_repository(lock, folder, downloads, tell, names)
        return _take_in(project, stage, folder, lock)


def _report(stage: str, taken: "Taken", project: Project) -> list[str]:
    weights, recipe = taken.weights, project.recipe
    lines = [
        f"{stage}: imported, {weights.tensors:,} tensors of {weights.dtype}, "
        f"{weights.parameters:,} parameters, content {taken.item.content}",
    ]
    if weights.max_positions != recipe.model.max_position_embeddings:
        lines.append(
            f"note: its longest sequence is {weights.max_positions:,}, the recipe's model has "
            f"{recipe.model.max_position_embeddings:,}; stages lengthen it as they need"
        )
    if taken.chat_template == "differs":
        lines.append("note: its chat template has another text; the recipe's is used")
    recipe_file = project.placement.recipe
    lines.append(
        f"{recipe_file} names it under imports; go on with ./kit run --config recipe={recipe_file}"
    )
    return lines
