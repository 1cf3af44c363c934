"""An import is checked, kept byte for byte, named in the recipe, and comes out the same."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from instella import cli
from instella.artifacts.check import audit, check_results
from instella.artifacts.manifest import read_manifest
from instella.artifacts.runner import run_stage
from instella.artifacts.why import why
from instella.canonical import sha256_file
from instella.errors import Incomplete
from instella.importing.take import stage_of, take_in
from instella.network.folder import load_folder
from instella.recipe.graph import build_graph
from instella.recipe.settings import Import
from instella.training.folders import start_network

from .published import INDEX, SHARDS, Place, change_json, make_folder, make_place, read_tensors


def take(place: Place, folder: Path, stage: str = "sft") -> Import:
    return take_in(place.recipe, stage, folder, place.workspace, place.toolchain()).item


def call(place: Place, *arguments: Any) -> int:
    return cli.main(["import", *map(str, arguments), *place.options()])


def run(place: Place, stage: str) -> Any:
    """The stage as ``instella stage`` runs it; its function must not be needed."""
    graph = build_graph(place.recipe)

    def never(job: Any) -> None:
        raise AssertionError(f"{job.stage} was computed")

    return run_stage(graph[stage], graph, place.workspace, place.toolchain(), never)


def test_the_command_names_it_in_the_recipe_and_the_stage_takes_it(
    place: Place, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = place.recipe_file.read_text()
    assert call(place, folder, "--as", "sft") == 0
    out = capsys.readouterr().out
    (item,) = (place.recipe.imports or {}).values()
    assert item.content in out and "bfloat16" in out and "chat template" in out
    assert place.recipe_file.read_text().startswith(before), "comments and order stay"
    manifest = run(place, "sft")
    assert (manifest.origin, manifest.kind, manifest.content) == (
        "imported", "finetune", item.content,
    )  # fmt: skip
    assert set(manifest.identity) == {"format", "stage", "kind", "settings", "inputs"}
    assert manifest.identity["settings"]["import"]["content"] == item.content
    assert read_manifest(place.workspace.manifest("sft")).to_bytes() == manifest.to_bytes()
    assert call(place, "--remove", "sft") == 0
    assert place.recipe_file.read_text() == before


def test_weights_are_kept_and_the_rest_is_ours(place: Place, folder: Path) -> None:
    call(place, folder, "--as", "sft")
    view = place.workspace.results / "sft"
    run(place, "sft")
    assert {path.name for path in view.iterdir()} == {
        "config.json", "generation_config.json", "import.json", "manifest.json",
        "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", INDEX, *SHARDS,
    }  # fmt: skip
    for name in (*SHARDS, INDEX):
        assert (view / name).read_bytes() == (folder / name).read_bytes()
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert (view / name).read_bytes() == (place.tokenizer() / name).read_bytes()
    config = json.loads((view / "config.json").read_bytes())
    assert "auto_map" not in config and config["max_position_embeddings"] == 64
    record = json.loads((view / "import.json").read_bytes())
    assert record["files"][SHARDS[0]]["sha256"] == sha256_file(folder / SHARDS[0])
    assert record["dtype"] == "bfloat16" and record["tensors"] == 25
    assert "modeling_instella.py" not in record["files"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtype_and_bits_survive_export_import_export(
    place: Place, tmp_path: Path, dtype: torch.dtype
) -> None:
    first = make_folder(tmp_path / "first", place, dtype)
    before = read_tensors(first)
    take(place, first)
    call(place, first, "--as", "sft")
    run(place, "sft")
    exported = shutil.copytree(place.workspace.results / "sft", tmp_path / "exported")
    after = read_tensors(exported)
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        assert after[name].dtype == dtype and torch.equal(after[name], tensor)
    again = take(place, exported, "dpo")
    files = stage_files(place, "dpo", again)
    assert files[SHARDS[0]] == sha256_file(first / SHARDS[0])
    started = start_network(exported, "native-cpu", 100, 1, place.recipe.stages.sft.training)
    assert started.settings.max_position_embeddings == 100
    assert all(
        torch.equal(tensor, before[name].float()) for name, tensor in started.state_dict().items()
    )


def stage_files(place: Place, stage: str, item: Import) -> dict[str, str]:
    """Name to hash of what was recorded."""
    from instella.artifacts.identity import identity, identity_key

    tokenizer = read_manifest(place.workspace.manifest("tokenizer")).content
    made = identity(
        stage_of(place.recipe, stage, item), place.toolchain(), {"tokenizer": tokenizer}
    )
    manifest = place.workspace.store.action(identity_key(made))
    assert manifest is not None
    return {name: entry.sha256 for name, entry in manifest.files.items()}


def test_the_same_folder_gives_the_same_content_anywhere(
    place: Place, folder: Path, tmp_path: Path
) -> None:
    other = make_place(tmp_path / "elsewhere")
    moved = shutil.copytree(folder, tmp_path / "moved")
    for name in ("README.md", "modeling_instella.py"):
        (moved / name).unlink()
    first, second = take(place, folder), take(other, moved)
    assert first == second
    assert take(place, folder, "dpo").content == first.content, "the stage is no part of it"


def test_lost_results_come_back_and_a_lost_store_says_so(place: Place, folder: Path) -> None:
    call(place, folder, "--as", "sft")
    first = run(place, "sft")
    shutil.rmtree(place.workspace.results / "sft")
    assert run(place, "sft").to_bytes() == first.to_bytes()
    shutil.rmtree(place.folder / "store" / "actions")
    with pytest.raises(Incomplete, match=r"sft: the recipe imports it .* run `instella import"):
        run(place, "sft")
    assert call(place, folder, "--as", "sft") == 0
    assert run(place, "sft").to_bytes() == first.to_bytes()


def test_a_damaged_object_is_set_aside_and_the_import_asked_for(place: Place, folder: Path) -> None:
    call(place, folder, "--as", "sft")
    manifest = run(place, "sft")
    shutil.rmtree(place.workspace.results / "sft")
    path = place.workspace.store.object_path(manifest.files[SHARDS[1]].sha256)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    with pytest.raises(Incomplete, match="import FOLDER --as sft"):
        run(place, "sft")
    assert not path.exists()


def test_another_tokenizer_or_model_needs_another_import(place: Place, folder: Path) -> None:
    call(place, folder, "--as", "sft")
    run(place, "sft")
    text = place.recipe_file.read_text()
    place.recipe_file.write_text(
        text.replace(
            "max_position_embeddings: 512", "rope_theta: 5.0\n  max_position_embeddings: 512"
        )
    )
    with pytest.raises(Incomplete, match="for this model and tokenizer"):
        run(place, "sft")
    place.recipe_file.write_text(text)
    manifest = json.loads(place.workspace.manifest("tokenizer").read_bytes())
    other = make_place(place.folder / "other", ["something else entirely " * 50])
    shutil.copy(other.workspace.manifest("tokenizer"), place.workspace.manifest("tokenizer"))
    assert json.loads(place.workspace.manifest("tokenizer").read_bytes()) != manifest
    with pytest.raises(Incomplete, match="for this model and tokenizer"):
        run(place, "sft")


def test_checks_and_reasons(place: Place, folder: Path) -> None:
    call(place, folder, "--as", "sft")
    graph, space, tools = build_graph(place.recipe), place.workspace, place.toolchain()

    def reason() -> str:
        return why("sft", space.results, space.store, build_graph(place.recipe), tools)

    assert reason().startswith("sft would be taken from the store")
    run(place, "sft")
    about_sft = [fault for fault in audit(space.results, space.store, graph, tools)
                 if fault.stage == "sft"]  # fmt: skip
    assert about_sft == []
    assert [f for f in check_results(space.results, space.store, graph) if f.stage == "sft"] == []
    item = place.recipe.imports["sft"]  # type: ignore[index]
    assert reason() == (
        "sft would have to be imported again only if source_olmo, which has to be made again, "
        "changes."
    )
    call(place, "--remove", "sft")
    trained = build_graph(place.recipe)
    faults = audit(space.results, space.store, trained, tools)
    origins = {f.file: (f.expected, f.found) for f in faults if f.stage == "sft"}
    assert origins["origin"] == ("computed", "imported")
    assert any(f.stage == "sft" for f in check_results(space.results, space.store, trained))
    change = stage_of(place.recipe, "sft", Import("1" * 64))
    text = why("sft", space.results, space.store, {**graph, "sft": change}, tools)
    assert text.startswith("sft has to be imported with `instella import FOLDER --as sft`")
    assert f"content {'1' * 16}... of a folder" in text and item.content in text


def test_a_killed_import_leaves_nothing_behind(place: Place, folder: Path) -> None:
    """What it had copied is removed by the next one; the store had nothing of it."""
    work = place.workspace.store.root / "work" / "import-sft"
    (work / "copy").mkdir(parents=True)
    (work / "copy" / SHARDS[0]).write_bytes(b"half a file")
    item = take(place, folder)
    assert not work.exists()
    assert stage_files(place, "sft", item)[SHARDS[0]] == sha256_file(folder / SHARDS[0])


def test_import_again_says_what_it_replaces(
    place: Place, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(place, folder, "--as", "sft")
    first = place.recipe.imports["sft"]  # type: ignore[index]
    text = place.recipe_file.read_text()
    assert call(place, folder, "--as", "sft") == 0
    assert place.recipe_file.read_text() == text and "replaces" not in capsys.readouterr().out
    change_json(folder / "config.json", max_position_embeddings=128)
    assert call(place, folder, "--as", "sft") == 0
    assert f"replaces the import of content {first.content}" in capsys.readouterr().out
    assert load_folder(folder, "native-cpu").settings.max_position_embeddings == 128


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ((), 2, "--as"),
        (("--as", "sft"), 2, "name a folder"),
        (("nowhere", "--as", "sft"), 2, "nowhere: no such folder"),
        (("nowhere", "--as", "sftt"), 2, "did you mean 'sft'?"),
        (("nowhere", "--as", "tokenizer"), 2, "--as 'tokenizer' is not a checkpoint"),
        (("nowhere", "--as", ""), 2, "--as '' is not a checkpoint of the recipe; name one of"),
        (("--remove", ""), 2, "--remove ''"),
        (("nowhere", "--as", "pretrain_stage1"), 2, "optimizer moments"),
        (("--remove", "sft"), 2, "has no such stage among its imports"),
        (("--remove", "sft", "--as", "sft"), 2, "--remove goes with no"),
        (("--lock", "nowhere", "--as", "sft"), 2, "no such lock"),
    ],
)
def test_bad_use_is_one_line(
    place: Place,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    part: str,
) -> None:
    before = place.recipe_file.read_bytes()
    assert call(place, *arguments) == code
    err = capsys.readouterr().err
    assert part in err and err.count("\n") == 1
    assert place.recipe_file.read_bytes() == before
    assert sorted(path.name for path in place.folder.iterdir()) == [
        "nano.yaml", "results", "store", "tokenizer",
    ]  # fmt: skip


def test_without_a_tokenizer_it_says_what_to_run(
    place: Place, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(place.tokenizer())
    assert call(place, folder, "--as", "sft") == 3
    assert "./kit run" in capsys.readouterr().err
