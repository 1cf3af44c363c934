"""Imports are written into a recipe line by line; the graph loses what they stand for."""

from dataclasses import replace
from pathlib import Path

import pytest

from instella.errors import BadUse
from instella.importing.recipe_file import write_entry
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe
from instella.recipe.readiness import require_ready
from instella.recipe.settings import Import, Recipe

from .published import ROOT

NANO = ROOT / "recipes" / "nano.yaml"
ITEM = Import("1" * 64)
PINNED = Import("2e3" + "0" * 61, "amd/Instella-3B", "3" * 40)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_bytes(NANO.read_bytes())
    path.chmod(0o640)
    return path


def test_written_changed_and_removed(file: Path) -> None:
    before = file.read_bytes()
    write_entry(file, "sft", ITEM)
    write_entry(file, "dpo", PINNED)
    assert read_recipe(file).imports == {"sft": ITEM, "dpo": PINNED}
    write_entry(file, "sft", PINNED)
    assert read_recipe(file).imports == {"sft": PINNED, "dpo": PINNED}
    assert file.read_bytes().startswith(before) and file.stat().st_mode & 0o777 == 0o640
    write_entry(file, "sft", None)
    write_entry(file, "dpo", None)
    assert file.read_bytes() == before and list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    "block",
    [
        "imports:  # from the hub\n    # the chat model\n    dpo: {content: '%s'}\n",
        "imports:\n  dpo:   {content: '%s'}   # ours\n\n",
        "imports:\r\n  dpo: {content: '%s'}\r\n",
        "imports:\n  dpo: {content: '%s'}",
    ],
)
def test_what_a_person_wrote_stays(file: Path, block: str) -> None:
    newline = "\r\n" if "\r\n" in block else "\n"
    text = file.read_text().replace("\n", newline)
    text = text.replace(
        f"{newline}model:{newline}", f"{newline}{block % ('4' * 64)}{newline}model:{newline}"
    )
    file.write_bytes(text.encode())
    other = Import("4" * 64)
    write_entry(file, "sft", ITEM)
    assert read_recipe(file).imports == {"sft": ITEM, "dpo": other}
    assert "# from the hub" not in block or "# from the hub" in file.read_text()
    write_entry(file, "sft", None)
    assert file.read_bytes() == text.encode()


@pytest.mark.parametrize(
    "block", ["imports: {dpo: {content: '%s'}}", "imports:\n  dpo:\n    content: '%s'"]
)
def test_other_forms_are_left_to_a_person(file: Path, block: str) -> None:
    with file.open("a") as stream:
        stream.write("\n" + block % ("4" * 64) + "\n")
    before = file.read_bytes()
    with pytest.raises(BadUse) as caught:
        write_entry(file, "dpo", ITEM)
    assert "\n" not in str(caught.value)
    assert file.read_bytes() == before and list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ("sftt: {content: '%s'}", "did you mean 'sft'?"),
        ("sft: {content: abc}", "is not 64 hex digits"),
        ("sft: {content: '%s', repository: amd/x}", "only one of repository and revision"),
        ("sft: {content: '%s', repository: amd/x, revision: main}", "is not 40 hex digits"),
        ("pretrain_stage1: {content: '%s'}", "without optimizer moments, which pretrain_stage2"),
    ],
)
def test_wrong_imports_have_their_line(file: Path, entry: str, part: str) -> None:
    text = file.read_text() + f"imports:\n  {entry.replace('%s', '4' * 64)}\n"
    file.write_text(text)
    with pytest.raises(BadUse) as caught:
        read_recipe(file)
    assert part in str(caught.value) and str(caught.value).startswith(
        f"{file}:{text.count(chr(10))}"
    )


def importing(*names: str, recipe: str = "nano") -> Recipe:
    whole = read_recipe(ROOT / "recipes" / f"{recipe}.yaml")
    return replace(whole, imports=dict.fromkeys(names, ITEM))


def test_nothing_imported_changes_nothing() -> None:
    assert build_graph(importing()) == build_graph(read_recipe(NANO))


def test_what_an_import_stands_for_is_left_out() -> None:
    whole, graph = build_graph(read_recipe(NANO)), build_graph(importing("sft"))
    assert graph["sft"].is_imported and graph["sft"].inputs == {"tokenizer": "tokenizer"}
    gone = set(whole) - set(graph)
    assert {"pretrain_stage1", "pretrain_stage2", "tokens_sft", "baseline", "source_code"} & gone == {
        "pretrain_stage1", "pretrain_stage2", "tokens_sft", "baseline",
    }  # fmt: skip
    assert {"heldout", "tokenizer", "tokens_dpo", "evaluate_sft"} <= set(graph)
    assert graph["dpo"] == whole["dpo"] and graph["grpo3"] == whole["grpo3"]
    results = graph["results"]
    assert results.settings["checkpoints"][0] == "sft" and "baseline" not in results.inputs
    order = {name: number for number, name in enumerate(graph)}
    for stage in graph.values():
        assert all(order[source] < order[stage.name] for source in stage.inputs.values())


def test_one_seed_of_three_keeps_the_others_way() -> None:
    graph = build_graph(importing("pretrain_stage2_seed6198"))
    assert not graph["pretrain_stage1"].is_imported and "baseline" in graph
    assert graph["pretrain_stage2_seed6198"].is_imported


def test_the_last_checkpoint_alone_is_measured() -> None:
    graph = build_graph(importing("grpo3"))
    assert [name for name in graph if not name.startswith("source_")] == [
        "heldout", "tokenizer", "grpo3", "evaluate_grpo3", "results",
    ]  # fmt: skip


def test_claims_about_what_is_left_out_go() -> None:
    whole = build_graph(read_recipe(ROOT / "recipes/tiny.yaml"))["results"].settings["claims"]
    claims = build_graph(importing("dpo", recipe="tiny"))["results"].settings["claims"]
    kept = {"dpo", "math_sft1", "math_sft2", "grpo1", "grpo2", "grpo3", None}
    assert claims == tuple(c for c in whole if {c.stage, c.against} <= kept)
    assert 0 < len(claims) < len(whole)


def test_fewer_sources_have_to_be_pinned(tmp_path: Path) -> None:
    def missing(recipe: Recipe) -> str:
        with pytest.raises(BadUse) as caught:
            require_ready(recipe, tmp_path / "x.yaml", "local")
        return str(caught.value)

    whole = missing(read_recipe(ROOT / "recipes/instella-3b.yaml"))
    cut = missing(importing("math_sft1", recipe="instella-3b"))
    assert "olmoe_dclm" in whole and "olmoe_dclm" not in cut
