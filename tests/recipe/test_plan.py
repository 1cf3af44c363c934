"""The plan against arithmetic done by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from instella.cli import main
from instella.plan.flops import forward_flops, multiplied_parameters, seconds, training_flops
from instella.plan.memory import (
    activation_bytes,
    gathered_bytes,
    logit_bytes,
    released_bytes,
    resumable_bytes,
    state_bytes,
)
from instella.plan.plan import Assumptions, plan
from instella.plan.report import HEAD, LEGEND, legend, scaled, text
from instella.plan.work import updates, work_of
from instella.recipe.settings import Import, Model, Recipe

ROOT = Path(__file__).resolve().parents[2]
FULL = ROOT / "recipes" / "instella-3b.yaml"
TINY = ROOT / "recipes" / "tiny.yaml"

# h 4, i 6, one layer, one head, 10 rows: a layer has 64 + 8 + 72 + 8 = 152 weights, all 236.
SMALL = Model(
    hidden_size=4, intermediate_size=6, num_hidden_layers=1, num_attention_heads=1,
    vocab_size=10, max_position_embeddings=8,
)  # fmt: skip


def test_operations_by_hand() -> None:
    assert multiplied_parameters(SMALL) == 236 - 40
    assert forward_flops(SMALL, 8) == 2 * 196 + 4 * 1 * 4 * 8
    assert training_flops(SMALL, 8) == 3 * (392 + 128)
    assert seconds(1e15, 1e14, 0.5) == 20.0


def test_memory_by_hand() -> None:
    assert state_bytes(236, 8) == 16 * 236 / 8
    assert gathered_bytes(236, "bfloat16") == 944
    # 14 vectors of 4 and four of 6 a token: 80 values; four of 4 around the last norm
    # in bfloat16 the norms keep their inputs in float32: four vectors of a layer, and the last
    assert activation_bytes(SMALL, 3, False, width=2) == 3 * (2 * (80 + 16) + 2 * (16 + 4))
    assert activation_bytes(SMALL, 3, False, 2, compiled=True) == 3 * (2 * (80 + 16) + 2 * 4)
    assert activation_bytes(SMALL, 3, True, width=2) == 3 * (2 * (4 + 16) + 2 * 4)
    assert activation_bytes(replace(SMALL, num_hidden_layers=5), 3, True, width=4) == 12 * (20 + 16)
    assert activation_bytes(SMALL, 3, False, width=4) == 4 * 3 * (80 + 16)
    assert logit_bytes(SMALL, 3, 1000) == 12 * 3 * 10
    assert logit_bytes(SMALL, 3, 20) == 12 * 20
    assert (released_bytes(236), resumable_bytes(236)) == (472, 2832)


def test_operations_of_the_published_network(recipe: Recipe) -> None:
    """6 (3,112,675,840 - 50,304 x 2,560) + 12 x 36 x 2,560 x 4,096."""
    assert training_flops(recipe.model, 4096) == 6 * 2_983_897_600 + 4_529_848_320
    assert training_flops(recipe.model, 4096) == 22_433_233_920


def test_stage_2_by_hand(recipe: Recipe) -> None:
    """57,575,211,008 tokens, three seeds, 128 GPUs at half of 1.3074e15."""
    stage = plan(recipe, {}, Assumptions(mfu=0.5, pue=1.2))[1]
    assert (stage.runs, stage.steps, stage.tokens) == (3, 13727, 57_575_211_008)
    flops = 3 * 57_575_211_008 * 22_433_233_920
    assert stage.flops == pytest.approx(flops, rel=1e-12)
    hours = flops / (1.3074e15 * 0.5) / 3600
    assert stage.gpu_hours == pytest.approx(hours) and hours == pytest.approx(1646.5, abs=0.1)
    assert stage.wall_hours == pytest.approx(hours / 128)
    assert stage.energy_kwh == pytest.approx(0.75 * hours * 1.2)
    assert stage.data_bytes == 2 * 57_575_211_008
    assert stage.resumable_bytes == 12 * 3_112_675_840
    assert stage.released_bytes == 6_225_351_680
    assert (stage.checkpoints_written, stage.checkpoints_kept) == (14, 2)


def test_peak_memory_by_hand(recipe: Recipe) -> None:
    """Stage 1: 8 windows of 4,096 a GPU; 14 x 2,560 + 4 x 6,912 values a token and layer."""
    stage = plan(recipe, {}, Assumptions())[0]
    weights, tokens, layer = 3_112_675_840, 32768, 63488
    fixed = 12 * weights / 8 + 4 * weights
    logits = 12 * 2**25
    # the last norm keeps its input in float32
    assert stage.peak_bytes == fixed + 2 * tokens * (36 * layer + 5 * 2560) + logits
    at_loss = 2 * tokens * (36 * 2560 + 5 * 2560) + logits
    assert at_loss > 4 * weights / 8 + 2 * tokens * layer
    assert stage.peak_bytes_other == fixed + at_loss
    assert recipe.hardware is not None
    assert stage.peak_bytes < recipe.hardware.memory_bytes  # published without checkpointing


def test_every_stage_fits_its_gpus(recipe: Recipe) -> None:
    assert recipe.hardware is not None
    for stage in plan(recipe, {}, Assumptions()):
        assert stage.peak_bytes < recipe.hardware.memory_bytes, stage.stage


def test_preference_counts_two_rows_and_a_reference(recipe: Recipe) -> None:
    work = work_of(recipe, "dpo", {"dpo": 366981})
    assert work.steps == 2867 and work.tokens == 2867 * 128 * 2 * 2048
    assert work.training_flops == work.tokens * 4 * forward_flops(recipe.model, 2048)
    assert work.micro_tokens == 8 * 2 * 2048
    assert work.data_bytes == 366981 * 2 * 2048 * 3


def test_policy_by_hand(recipe: Recipe) -> None:
    work = work_of(recipe, "grpo2", {})
    responses = 600 * 128 * 16
    assert work.generated == responses * 16000 and work.tokens == responses * 16512
    forward = forward_flops(recipe.model, 16512)
    assert work.training_flops == work.tokens * 5 * forward
    assert work.rollout_flops == work.tokens * forward
    half = work_of(recipe, "grpo2", {}, answer_share=0.5)
    assert half.generated == responses * 8000 and half.micro_tokens == work.micro_tokens
    few = work_of(recipe, "grpo2", {"grpo2": 1280})
    assert few.steps == 100  # ten epochs of ten steps


def test_decoding_costs_time(recipe: Recipe) -> None:
    slow, fast = (plan(recipe, {}, Assumptions(decode_rate=rate))[7] for rate in (1000.0, 2000.0))
    generated = 600 * 128 * 16 * 16000
    assert slow.rollout_gpu_hours == pytest.approx(generated / 1000 / 3600)
    assert slow.gpu_hours is not None and fast.gpu_hours is not None
    assert slow.gpu_hours - fast.gpu_hours == pytest.approx(generated / 2000 / 3600)


def test_updates_drop_the_partial_batch(recipe: Recipe) -> None:
    training = recipe.stages.sft.training
    assert updates(training, 2173340, 128) == 3 * 16979
    assert updates(replace(training, max_steps=5), 2173340, 128) == 5
    assert updates(training, 127, 128) == 0


def test_table_names_all_stages_and_the_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe", "plan", str(FULL), "--mfu", "0.4"]) == 0
    out = capsys.readouterr().out
    for name in ("pretrain_stage1", "math_sft2", "grpo3", "total"):
        assert any(line.startswith(name) for line in out.splitlines())
    assert "MFU 0.4" in out and "arXiv 2204.02311" in out
    assert "published: pretrain_stage2 tokens: 57,575,000,000, planned 57,575,211,008, ratio 1.0000" in out  # fmt: skip
    assert "GPU-hours, wall time, MFU, energy: unknown" in out


def test_plan_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe", "plan", "--json", str(FULL)]) == 0
    value = json.loads(capsys.readouterr().out)
    assert [stage["stage"] for stage in value["stages"]][:2] == [
        "pretrain_stage1", "pretrain_stage2",
    ]  # fmt: skip
    hours = sum(stage["gpu_hours"] for stage in value["stages"])
    assert value["total"]["gpu_hours"] == pytest.approx(hours)
    ratios = {(row["stage"], row["what"]): row["planned"] / row["published"] for row in value["published"]}  # fmt: skip
    assert ratios["sft", "tokens of an epoch"] == pytest.approx(1.0, abs=1e-4)
    assert ratios["dpo", "tokens"] == pytest.approx(1.978, abs=1e-3)  # padding


def test_tiny_has_no_hardware(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe", "plan", "--results", str(tmp_path), str(TINY)]) == 0
    out = capsys.readouterr().out
    assert "hardware: not given" in out and "unknown until the data is tokenized: sft, dpo" in out
    folder = tmp_path / "tiny" / "tokens_sft"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text('{"rows": 6195}', encoding="utf-8")
    assert main(["recipe", "plan", "--results", str(tmp_path), str(TINY)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sft ")]
    assert line.split()[:3] == ["sft", "1", "193"]


def test_what_does_not_fit_is_told(recipe: Recipe) -> None:
    assert recipe.hardware is not None
    small = replace(recipe, hardware=replace(recipe.hardware, memory_bytes=80e9))
    assumptions = Assumptions()
    lines = text(small, plan(small, {}, assumptions), assumptions)
    assert any(line.startswith("does not fit: pretrain_stage1, pretrain_stage2") for line in lines)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e-300", "half"])
def test_assumptions_are_positive_numbers(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["recipe", "plan", str(FULL), "--mfu", value])
    assert stop.value.code == 2
    assert "is not a number from 1e-6 to 1e12" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--mfu", "--answer-share"])
def test_a_share_is_at_most_one(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["recipe", "plan", str(FULL), option, "35"])
    assert stop.value.code == 2
    assert "'35' is more than 1, so it is no share" in capsys.readouterr().err


def test_a_building_uses_no_less_than_what_stands_in_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["recipe", "plan", str(FULL), "--pue", "0.5"])
    assert stop.value.code == 2
    assert "'0.5' is less than 1, which no building reaches" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "unit", "expected"),
    [(None, "", "-"), (57_575_211_008, "", "57.6 G"), (6.225e9, "B", "6.22 GB"), (12, "B", "12 B"),
     (4.065e12, "", "4.07 T"), (1500, "", "1.5 k"), (7, "", "7")],
)  # fmt: skip
def test_scaled(number: float | None, unit: str, expected: str) -> None:
    assert scaled(number, unit) == expected


def test_what_is_imported_is_not_planned(recipe: Recipe) -> None:
    def planned(*names: str) -> dict[str, int]:
        imported = replace(recipe, imports={name: Import("0" * 64) for name in names})
        return {stage.stage: stage.runs for stage in plan(imported, {}, Assumptions())}

    everything = planned()
    assert everything["pretrain_stage2"] == 3 and len(everything) == 9
    assert list(planned("sft")) == ["dpo", "math_sft1", "math_sft2", "grpo1", "grpo2", "grpo3"]
    assert list(planned("grpo3")) == []
    assert list(planned("math_sft2")) == ["grpo1", "grpo2", "grpo3"]
    seed = recipe.stages.pretrain_stage2.seeds[0]
    one = planned(f"pretrain_stage2_seed{seed}")
    assert one["pretrain_stage2"] == 2 and one["pretrain_stage1"] == 1


def test_an_import_is_told_and_figures_of_what_it_spares_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TINY.read_text(encoding="utf-8")
    file = TINY.parent / "tiny.yaml"
    copy = tmp_path / file.name
    copy.write_text(f'{text}imports:\n  sft: {{content: "{"0" * 64}"}}\n')
    for name in ("word_problems.jsonl",):
        (tmp_path / name).write_bytes((TINY.parent / name).read_bytes())
    assert main(["recipe", "plan", "--results", str(tmp_path), str(copy)]) == 0
    out = capsys.readouterr().out
    assert "\npretrain_stage1 " not in out and "\ndpo " in out
    assert "imported: sft; so not trained here: pretrain_stage1, pretrain_stage2, sft" in out
    assert main(["recipe", "plan", "--json", "--results", str(tmp_path), str(copy)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["imported"] == ["sft"] and told["stages"][0]["stage"] == "dpo"


def test_every_term_of_the_table_has_a_line() -> None:
    assert set(HEAD) - {"stage"} <= set(LEGEND)
    assert {"MFU", "PUE"} <= set(LEGEND)
    assert all(line.startswith(term) for term, line in zip(LEGEND, legend(), strict=True))
    assert all(len(line) < 100 for line in legend())
