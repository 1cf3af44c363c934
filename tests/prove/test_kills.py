"""Plans of kills, and the looks at what a kill left."""

from collections import Counter
from pathlib import Path

from instella.canonical import sha256_bytes
from instella.prove.copies import PROJECT
from instella.prove.finished import RecipeRun, damaged_objects, partial_files
from instella.prove.kills import RANK, VICTIMS, plans
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe

GRAPH = build_graph(read_recipe(PROJECT / "recipes" / "nano.yaml"))


def test_kills_are_spread_over_stages_and_victims() -> None:
    made = plans(GRAPH, 2 * len(GRAPH), seed=7)
    assert made == plans(GRAPH, 2 * len(GRAPH), seed=7)
    assert made != plans(GRAPH, 2 * len(GRAPH), seed=8)
    assert Counter(plan.stage for plan in made) == dict.fromkeys(GRAPH, 2)
    for stage in GRAPH:
        assert len({plan.victim for plan in made if plan.stage == stage}) == 2
    assert {plan.victim for plan in made} == set(VICTIMS)
    assert 0 < sum(plan.writing for plan in made) < sum(GRAPH[plan.stage].trains for plan in made)
    assert len({plan.stage for plan in plans(GRAPH, 7, seed=7)}) == 7
    assert all(0.0 <= plan.fraction < 1.0 for plan in made)


def test_only_stages_that_train_have_ranks_and_checkpoints() -> None:
    trained = {name for name in GRAPH if GRAPH[name].trains}
    assert {"pretrain_stage1", "sft", "dpo", "grpo1"} <= trained
    assert not trained & {"tokenizer", "tokens_sft", "pretrain_stage2", "evaluate_sft", "results"}
    for plan in plans(GRAPH, 4 * len(GRAPH), seed=1):
        assert plan.stage in trained or not (plan.victim == RANK or plan.writing)
        assert plan.victim != RANK or plan.ranks == 2


def _run_with_one_file(folder: Path) -> tuple[RecipeRun, Path, Path]:
    """A stand-in for a run: one object, shown by one stage as a link to it."""
    run = RecipeRun(folder, "nano", PROJECT / "recipes" / "nano.yaml")
    stored = run.store / "sha256" / "ab" / sha256_bytes(b"whole")
    shown = run.results / "sft" / "model.safetensors"
    for path in (stored, shown):
        path.parent.mkdir(parents=True)
    stored.write_bytes(b"whole")
    shown.hardlink_to(stored)
    return run, stored, shown


def test_damaged_objects_are_named(tmp_path: Path) -> None:
    run, stored, _ = _run_with_one_file(tmp_path)
    assert damaged_objects(run.store) == []
    stored.write_bytes(b"whol")
    assert damaged_objects(run.store) == [stored.name]


def test_partial_files_are_named(tmp_path: Path) -> None:
    run, _, shown = _run_with_one_file(tmp_path)
    (shown.parent / ".place-1").write_bytes(b"not shown yet")
    assert partial_files(run) == []
    shown.unlink()
    shown.write_bytes(b"whole")
    assert partial_files(run) == []
    shown.write_bytes(b"whol")
    assert partial_files(run) == ["sft/model.safetensors"]
