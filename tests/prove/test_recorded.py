"""Recorded roots: their form, the first difference, and the rule of the changelog."""

import re
from pathlib import Path

import pytest

from instella.artifacts.check import root
from instella.artifacts.manifest import Entry, Manifest
from instella.errors import BadUse
from instella.prove.copies import PROJECT
from instella.prove.recorded import (
    Compared,
    Recorded,
    comparison,
    first_difference,
    first_different_file,
    read_recorded,
    recipe_hash,
    root_of,
)
from instella.recipe.graph import Stage, build_graph
from instella.recipe.reader import read_recipe

CONTENTS = {"second": "b" * 64, "first": "a" * 64}
RECORDED = Recorded("d" * 64, CONTENTS)
SHIPPED = sorted((PROJECT / "recipes").glob("*.root"))


def _manifest(stage: str, **files: str) -> Manifest:
    entries = {name: Entry(digit * 64, 1) for name, digit in files.items()}
    identity = {"stage": stage, "kind": "toy", "inputs": {}}
    return Manifest(stage, "toy", "computed", identity, entries)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "toy.root"
    path.write_text(RECORDED.to_text(), encoding="ascii")
    lines = path.read_text().splitlines()
    assert lines[:2] == [root_of(CONTENTS), f"recipe {'d' * 64}"]
    assert lines[2:] == [f"{'b' * 64} second", f"{'a' * 64} first"]
    found = read_recorded(path)
    assert found == RECORDED and list(found.contents) == list(CONTENTS)


def test_root_is_that_of_a_run(tmp_path: Path) -> None:
    manifests = {name: _manifest(name, file=digit) for name, digit in (("x", "1"), ("y", "2"))}
    for name, manifest in manifests.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_bytes(manifest.to_bytes())
    graph = {name: Stage(name, "toy", {}, {}) for name in manifests}
    contents = {name: manifest.content for name, manifest in manifests.items()}
    assert root_of(contents) == root(tmp_path, graph)


@pytest.mark.parametrize(
    ("spoil", "place"),
    [
        (lambda text: text.replace("a" * 64, "c" * 64), ":1: "),
        (lambda text: text.replace("recipe ", ""), ":2: "),
        (lambda text: text.replace(" first", "first"), ":4: "),
        (lambda text: text.replace("first", "second"), ":4: "),
        (lambda text: text + "\n", ":5: "),
        (lambda text: "", ":2: "),
        (lambda text: "\N{LATIN SMALL LETTER A WITH DIAERESIS}", ": not a readable"),
    ],
)
def test_another_form_is_refused(tmp_path: Path, spoil, place: str) -> None:
    path = tmp_path / "toy.root"
    path.write_text(spoil(RECORDED.to_text()), encoding="utf-8")
    with pytest.raises(BadUse, match=re.escape(f"{path}{place}")):
        read_recorded(path)


def test_first_difference_follows_the_graph() -> None:
    assert first_difference(CONTENTS, CONTENTS) is None
    both = dict.fromkeys(CONTENTS, "c" * 64)
    found = first_difference(CONTENTS, both)
    assert found == f"second: expected content {'b' * 16}, found {'c' * 16}"
    assert first_difference(CONTENTS, {"second": "b" * 64}) == "first: expected, but not there"
    assert first_difference({}, CONTENTS) == "second: a stage that was not expected"


def test_first_different_file_is_named() -> None:
    left = {"one": _manifest("one", a="1"), "two": _manifest("two", a="1", b="2", c="3")}
    right = {**left, "two": _manifest("two", a="1", b="4", c="5")}
    assert first_different_file(left, left) is None
    found = first_different_file(left, right)
    assert found == f"two: b: expected {'2' * 16} of 1 bytes, found {'4' * 16} of 1 bytes"
    lost = {**left, "two": _manifest("two", a="1", b="2")}
    found = first_different_file(left, lost)
    assert found == f"two: c: expected {'3' * 16} of 1 bytes, found no such file"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_recorded_roots_are_of_the_recipes(path: Path) -> None:
    recipe = path.with_suffix(".yaml")
    recorded = read_recorded(path)
    assert list(recorded.contents) == list(build_graph(read_recipe(recipe)))
    assert recorded.recipe == recipe_hash(recipe), (
        f"{recipe.name} has other settings than those of {path.name}: run it and record its root"
    )


def test_recipe_hash_is_of_settings_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: x\nsizes: [1, 2]\n")
    before = recipe_hash(path)
    path.write_text("# words\nsizes:\n  - 1\n  - 2\n\nname: x # more\n")
    assert recipe_hash(path) == before
    for text in ("name: x\nsizes: [2, 1]\n", "name: x\nsizes: ['1', 2]\n", "name: x\n"):
        path.write_text(text)
        assert recipe_hash(path) != before


def test_comparison_of_a_run_with_its_record(tmp_path: Path) -> None:
    recipe, path = tmp_path / "toy.yaml", tmp_path / "toy.root"
    recipe.write_text("name: toy\n")
    assert comparison(recipe, CONTENTS) is None
    path.write_text(Recorded(recipe_hash(recipe), CONTENTS).to_text(), encoding="ascii")
    equal = Compared(f"equal to the recorded root, {path}")
    assert comparison(recipe, CONTENTS) == equal
    other = {**CONTENTS, "first": "c" * 64}
    found = comparison(recipe, other)
    text = f"first: expected content {'a' * 16}, found {'c' * 16}"
    assert found == Compared(f"NOT EQUAL to the recorded root, {path}: {text}", is_other=True)
    recipe.write_text("name: toy\nsize: 2\n")
    assert comparison(recipe, CONTENTS) == equal
    found = comparison(recipe, other)
    assert found == Compared(f"not compared with {path}, which was recorded for other settings")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_changelog_says_why_a_root_is_what_it_is(path: Path) -> None:
    start = read_recorded(path).root[:16]
    text = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    line = next((line for line in text.splitlines() if start in line), "")
    reason = line.partition(start)[2].strip(" `:.-")
    assert re.search(r"\w{3,} .*\w{3,}", reason), (
        f"CHANGELOG.md needs a line with {start}, the root in {path.name}, and after it why"
    )
