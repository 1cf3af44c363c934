"""Time and memory of each step, beside the artifact."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from stage_toys import SETTINGS, STEPS, run_toy, write_inputs

from instella.artifacts.notes import FOLDER, SPEED
from instella.canonical import json_bytes, read_jsonl
from instella.plan.flops import training_flops
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Hardware
from instella.report.noted import noted_rows
from instella.step_files import STEPS as LINES
from instella.training.loop import CHECKPOINTS

SMALL = Path(__file__).parents[1] / "recipe" / "small.yaml"


@pytest.mark.parametrize("kind", ["pretrain", "finetune", "preference", "policy"])
def test_each_step_has_one_line(tmp_path: Path, kind: str) -> None:
    """Also of a stage that was killed and does its last steps again."""
    inputs = write_inputs(tmp_path / "inputs")
    output = run_toy(kind, inputs, tmp_path / "run")
    lines = read_jsonl(output / LINES)
    notes = tmp_path / "run" / "scratch" / FOLDER / SPEED
    assert not list(output.rglob(SPEED))
    first = read_jsonl(notes)
    shutil.rmtree(max((tmp_path / "run" / "scratch" / CHECKPOINTS).glob("step-*")))
    run_toy(kind, inputs, tmp_path / "run")
    for rows in (first, read_jsonl(notes)):
        assert [row["step"] for row in rows] == [line["step"] for line in lines]
        assert [row["tokens"] for row in rows] == [line["tokens"] for line in lines]
        for row in rows:
            assert row["tokens_per_second"] == pytest.approx(row["tokens"] / row["seconds"])
            assert row["ranks"] == 1 and row["peak_memory_bytes"] > 50e6
    assert read_jsonl(notes)[:2] == first[:2]


def test_two_ranks_write_one_account(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "inputs")
    run_toy("pretrain", inputs, tmp_path / "run", SETTINGS["pretrain"], ranks=2)
    rows = read_jsonl(tmp_path / "run" / "scratch" / FOLDER / SPEED)
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert {row["ranks"] for row in rows} == {2}


def test_utilization_is_of_the_recipes_hardware(tmp_path: Path) -> None:
    recipe = read_recipe(SMALL)
    row = {"step": 3, "seconds": 2.0, "tokens": 2000, "tokens_per_second": 1000.0, "ranks": 4}
    (tmp_path / SPEED).write_bytes(json_bytes(row))
    hardware = Hardware("a GPU", 4, 1e9, 1e12, 300.0, {})
    known = replace(recipe, hardware=hardware)
    (found,) = noted_rows(tmp_path, known, "pretrain_stage2_seed6198")
    length = recipe.stages.pretrain_stage2.data.sequence_length
    assert found["mfu"] == pytest.approx(1000 * training_flops(recipe.model, length) / 4e12)
    assert noted_rows(tmp_path, known, "sft") == noted_rows(tmp_path, recipe, "sft") == [row]
