"""The script for a machine with one GPU: the same code on the CPU, and the kit's own network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import gpu_check
from instella import numerics
from instella.network.network import Instella
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Model

PROJECT = Path(__file__).parents[2]
SCRIPT = PROJECT / "benchmarks" / "gpu_check.py"


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ""},
    )  # fmt: skip


def test_on_the_cpu_the_steps_repeat_and_resume(tmp_path: Path) -> None:
    done = run(tmp_path, "--device=cpu", "--size=small", f"--folder={tmp_path}")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["repeats"] and found["resumes"] and found["first_other_step"] is None
    assert len({step["sha256"] for step in found["steps"]}) == 4
    assert found["tokens_per_second"] > 0 and found["peak_bytes"] > 0 and found["mfu"] is None
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "gpu_check: torch sees no GPU here, so nothing was run\n"


def test_its_settings_are_those_of_the_kit() -> None:
    assert numerics.pins("gfx942") == gpu_check.ROCM
    assert numerics.pins("sm90") == gpu_check.CUDA
    recipe = read_recipe(PROJECT / "recipes" / "instella-3b.yaml")
    stage, model = recipe.stages.pretrain_stage1, recipe.model
    assert gpu_check.SIZES["3b"] == (
        model.hidden_size, model.intermediate_size, model.num_hidden_layers,
        model.num_attention_heads, model.vocab_size, stage.data.sequence_length,
        stage.training.micro_batch,
    )  # fmt: skip


def test_its_network_is_the_kits() -> None:
    width, inner, layers, heads, vocabulary, length, _ = gpu_check.SIZES["small"]
    torch.manual_seed(0)
    own = gpu_check.Network(width, inner, layers, heads, vocabulary)
    for parameter in own.parameters():
        nn.init.normal_(parameter, 0.5, 0.2)
    kits = Instella(
        Model(width, inner, layers, heads, vocabulary, length, gpu_check.THETA,
              gpu_check.NORM_EPSILON), "native-cpu",
    )  # fmt: skip
    kits.load_state_dict(own.state_dict())
    ids = torch.randint(vocabulary, (2, length))
    torch.testing.assert_close(own.lm_head(own(ids)), kits(ids), rtol=1e-4, atol=1e-4)
    loss = nn.functional.cross_entropy(kits(ids)[:, :-1].reshape(-1, vocabulary),
                                       ids[:, 1:].reshape(-1))  # fmt: skip
    assert gpu_check.summed_loss(own, ids).item() == pytest.approx(loss.item(), rel=1e-5)
