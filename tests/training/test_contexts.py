"""Settings of a stage that reach the network: rotary base, documents, parts of the logits."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stage_toys import SETTINGS, SHAPE, run_toy, toy_job, write_inputs

from instella.canonical import write_npy
from instella.network.folder import load_folder
from instella.stages import finetune, pretrain
from instella.step_files import STEPS

THETA = 514640.0


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    return write_inputs(tmp_path / "inputs")


def trained(kind: str, **changes: Any) -> Any:
    settings = SETTINGS[kind]
    return replace(settings, training=replace(settings.training, **changes))


def losses(output: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (output / STEPS).open()]


def test_a_rotary_base_is_kept_by_later_stages(tmp_path: Path, inputs: Path) -> None:
    """Of pretraining from scratch with four times the context, then of what starts from it."""
    settings = trained("pretrain", rope_theta=THETA)
    settings = replace(settings, data=replace(settings.data, sequence_length=32))
    tokens = np.load(inputs / "pretrain" / "tokens.npy")
    write_npy(inputs / "pretrain" / "tokens.npy", np.tile(tokens, 4))
    job = toy_job("pretrain", inputs, tmp_path / "long", settings)
    model = replace(SHAPE, max_position_embeddings=32)
    job = replace(job, settings={**job.settings, "model": model})
    pretrain.run(job)
    assert losses(job.output) != losses(run_toy("pretrain", inputs, tmp_path / "short"))
    later = toy_job("finetune", inputs, tmp_path / "later")
    later = replace(later, inputs={**later.inputs, "init": job.output})
    finetune.run(later)
    back = toy_job("finetune", inputs, tmp_path / "back", trained("finetune", rope_theta=10000.0))
    back = replace(back, inputs={**back.inputs, "init": job.output})
    finetune.run(back)
    for output, theta in ((job.output, THETA), (later.output, THETA), (back.output, 10000.0)):
        config = json.loads((output / "config.json").read_bytes())
        assert config["rope_theta"] == theta
        assert config["max_position_embeddings"] == 32
        assert load_folder(output, "portable-x86").settings.rope_theta == theta
    assert losses(later.output) != losses(back.output)


def test_pretraining_within_documents(tmp_path: Path, inputs: Path) -> None:
    """Other losses where a window holds several documents, the same where it holds one."""
    whole = SETTINGS["pretrain"]
    within = replace(whole, document_mask=True)
    one = losses(run_toy("pretrain", inputs, tmp_path / "one", whole))
    assert losses(run_toy("pretrain", inputs, tmp_path / "masked", within)) == pytest.approx(
        one, rel=1e-6
    )
    tokens = np.load(inputs / "pretrain" / "tokens.npy")
    tokens[3::8] = 0
    write_npy(inputs / "pretrain" / "tokens.npy", tokens)
    several = losses(run_toy("pretrain", inputs, tmp_path / "several", whole))
    masked = losses(run_toy("pretrain", inputs, tmp_path / "several-masked", within))
    assert masked[0] == pytest.approx(several[0], rel=0.1)
    assert masked != several


@pytest.mark.parametrize("kind", ["pretrain", "finetune", "preference", "policy"])
def test_logits_in_parts_change_rounding_only(tmp_path: Path, inputs: Path, kind: str) -> None:
    usual = losses(run_toy(kind, inputs, tmp_path / "usual"))
    parts = losses(run_toy(kind, inputs, tmp_path / "parts", trained(kind, logits_at_once=64)))
    assert parts == pytest.approx(usual, rel=1e-4, abs=1e-6)
    assert torch.is_grad_enabled()
