"""The list of deviations: each entry has a test, each test an entry."""

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from instella.cli import main
from instella.recipe.published import Published
from instella.recipe.settings import Recipe

ROOT = Path(__file__).resolve().parents[2]
FULL = ROOT / "recipes" / "instella-3b.yaml"


def test_every_entry_names_a_test_that_exists(published: Published) -> None:
    functions: dict[str, set[str]] = {}
    for item in published.deviations:
        file, _, name = item.test.partition("::")
        if file not in functions:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            functions[file] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name.startswith("test_") and name in functions[file], item.id


def test_every_test_of_deviations_is_named_by_an_entry(published: Published) -> None:
    own = "tests/recipe/test_deviations.py"
    named = {item.test.partition("::")[2] for item in published.deviations if own in item.test}
    tree = ast.parse((ROOT / own).read_text(encoding="utf-8"))
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert {name for name in found if name.startswith("test_")} == named


def test_the_list_is_whole(recipe: Recipe, published: Published) -> None:
    kinds = Counter(item.kind for item in published.deviations)
    assert kinds["contradiction"] >= 15 and kinds["fault"] >= 25 and kinds["gap"] >= 8
    stages = set(recipe.stages.__dataclass_fields__)
    for item in published.deviations:
        assert item.stage in stages | {"general", "data", "tokenizer", "evaluation"}, item.id
        if item.kind == "contradiction":
            assert len(item.published) >= 2, item.id
        assert item.published and item.choice and item.consequence
    assert recipe.deviations == ()


def test_the_list_prints_by_stage_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe", "deviations", str(FULL)]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert len(heads) == len(set(heads)) and "grpo2" in heads and "evaluation" in heads
    assert any(line.strip() == "here: 128" for line in lines)
    assert main(["recipe", "deviations", "--json", str(FULL)]) == 0
    value = json.loads(capsys.readouterr().out)
    assert len(value["deviations"]) == sum("    here: " in line for line in lines) == 71
    assert main(["recipe", "deviations", "--json", str(ROOT / "recipes/tiny.yaml")]) == 0
    assert json.loads(capsys.readouterr().out)["deviations"] == []
