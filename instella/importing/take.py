"""Takes a folder in: checks a copy of it, publishes that, records it for the stage."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from instella.artifacts.identity import Toolchain, identity, identity_key
from instella.artifacts.manifest import Entry, Manifest, check_paths
from instella.artifacts.store import plain_files
from instella.artifacts.workspace import Workspace, input_manifests
from instella.canonical import write_json
from instella.data.sources.hub_lock import Lock
from instella.errors import VerificationError
from instella.importing.folder import CONFIG, WEIGHTS_END, copy_folder
from instella.importing.network import Weights, check_network, largest_bytes
from instella.importing.tokens import check_tokenizer
from instella.network.config import config_of
from instella.network.folder import TOKENIZER_FILES
from instella.network.shards import INDEX
from instella.recipe.graph import Stage, build_graph
from instella.recipe.settings import Import, Recipe

RECORD = "import.json"
PLACEHOLDER = Import(content="0" * 64)


@dataclass(frozen=True)
class Taken:
    """What an import gave.

    Attributes:
        item: the recipe's entry.
        weights: what the folder holds.
        chat_template: ``equal``, ``differs`` or ``absent``.
    """

    item: Import
    weights: Weights
    chat_template: str


def stage_of(recipe: Recipe, name: str, item: Import) -> Stage:
    """The stage as the graph has it when ``item`` stands for it."""
    imports = {**(recipe.imports or {}), name: item}
    return build_graph(replace(recipe, imports=imports))[name]


def take_in(
    recipe: Recipe,
    name: str,
    folder: Path,
    workspace: Workspace,
    toolchain: Toolchain,
    lock: Lock | None = None,
) -> Taken:
    """Check a folder, publish it in the store, and record it as the stage's artifact.

    The weights are kept byte for byte; configuration and tokenizer files are written as for
    every other checkpoint, from the recipe's model and tokenizer that they were compared
    with. ``import.json`` says which published files were read and what they hold.

    Args:
        recipe: decides network and tokenizer.
        name: a checkpoint of the recipe.
        folder: the published folder.
        workspace: where the tokenizer's result is and the artifact goes.
        toolchain: of this tree.
        lock: of the repository that the files come from; they are compared with it.

    Raises:
        BadUse: ``folder`` is no folder.
        Incomplete: the tokenizer has no result to compare with.
        VerificationError: the folder is not what it should be.
    """
    inputs = input_manifests(stage_of(recipe, name, PLACEHOLDER), workspace)
    with _working(workspace, name) as work:
        places = {place: work / place for place in ("copy", "tokenizer", "output")}
        for place in places.values():
            place.mkdir()
        _place_tokenizer(inputs["tokenizer"], places["tokenizer"], workspace)
        try:
            files = copy_folder(folder, places["copy"], largest_bytes(recipe.model))
            if lock is not None:
                _compare(files, lock, folder)
            template = check_tokenizer(places["copy"], places["tokenizer"], recipe.tokenizer)
            weights = check_network(places["copy"], recipe)
        except VerificationError as error:
            # Found in the copy, told of the original.
            text = str(error).replace(str(places["copy"]), str(folder))
            raise VerificationError(text) from None
        _write(places, recipe, files, weights)
        item = _publish(recipe, name, places["output"], workspace, toolchain, inputs, lock)
    return Taken(item, weights, template)


@contextmanager
def _working(workspace: Workspace, name: str) -> Iterator[Path]:
    """A folder on the store's disk for one import of the stage at a time."""
    work = workspace.store.root / "work" / f"import-{name}"
    with workspace.store.lock(work.name):
        # What a killed import left.
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            yield work
        finally:
            shutil.rmtree(work)


def _place_tokenizer(manifest: Manifest, folder: Path, workspace: Workspace) -> None:
    for name in TOKENIZER_FILES:
        entry = manifest.files[name]
        found = workspace.store.examine(entry)
        if found is not None:
            raise VerificationError(
                f"tokenizer: {name}: expected sha256 {entry.sha256}, found {found}; run the stage "
                "tokenizer again"
            )
        shutil.copyfile(workspace.store.object_path(entry.sha256), folder / name)


def _compare(files: dict[str, Entry], lock: Lock, folder: Path) -> None:
    where = f"{lock.repository} at {lock.commit}"
    for name, entry in files.items():
        locked = lock.files.get(name)
        if locked is None:
            raise VerificationError(f"{folder / name}: the lock of {where} has no such file")
        if (locked.size, locked.sha256) != (entry.size, entry.sha256):
            raise VerificationError(
                f"{folder / name}: SHA-256 is {entry.sha256}, in the lock of {where} it is "
                f"{locked.sha256}"
            )


def _write(
    places: dict[str, Path], recipe: Recipe, files: dict[str, Entry], weights: Weights
) -> None:
    """Fill the output folder; the copies of the weights move there."""
    output, ids = places["output"], recipe.tokenizer
    model = replace(recipe.model, max_position_embeddings=weights.max_positions)
    write_json(output / CONFIG, config_of(model, weights.dtype, ids.eos_id, ids.pad_id))
    generation = {
        "bos_token_id": ids.eos_id, "eos_token_id": ids.eos_id, "pad_token_id": ids.pad_id,
    }  # fmt: skip
    write_json(output / "generation_config.json", generation)
    for name in TOKENIZER_FILES:
        (places["tokenizer"] / name).rename(output / name)
    for name in files:
        if name.endswith(WEIGHTS_END) or name == INDEX:
            (places["copy"] / name).rename(output / name)
    read = {name: asdict(entry) for name, entry in files.items()}
    write_json(output / RECORD, {"files": read, **asdict(weights)})


def _publish(
    recipe: Recipe,
    name: str,
    output: Path,
    workspace: Workspace,
    toolchain: Toolchain,
    inputs: dict[str, Manifest],
    lock: Lock | None,
) -> Import:
    """Objects first, then the record that makes them the stage's artifact."""
    files = plain_files(output)
    try:
        check_paths(files)
    except ValueError as error:
        raise VerificationError(f"{name}: {error}") from None
    with workspace.store.in_use():
        entries = {path: workspace.store.publish(file) for path, file in files.items()}
        kind = stage_of(recipe, name, PLACEHOLDER).kind
        content = Manifest(name, kind, "imported", {}, entries).content
        item = Import(content, *((lock.repository, lock.commit) if lock is not None else ()))
        old = (recipe.imports or {}).get(name)
        if lock is None and old is not None and old.content == content:
            # The same bytes: what the recipe knows of where they come from stays true.
            item = old
        stage = stage_of(recipe, name, item)
        contents = {role: manifest.content for role, manifest in inputs.items()}
        made = identity(stage, toolchain, contents)
        manifest = Manifest(name, kind, "imported", made, entries)
        workspace.store.record(identity_key(made), manifest)
    return item
