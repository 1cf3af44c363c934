"""Training in bfloat16: float32 weights, and the same bytes on any ranks and layout."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from stage_toys import SETTINGS, STAGES, digests, toy_job, write_inputs

from instella.recipe.settings import Sharding
from instella.step_files import LEDGER, STEPS
from instella.training.loop import CHECKPOINTS
from instella.training.processes import launch
from instella.training.reduction import Group

NUMERICS = "native-cpu"
WHOLE, FULL, MODEL = Sharding(), Sharding("full"), Sharding("full", wrap="model")
HYBRID = Sharding("hybrid", 2)


def chosen(kind: str, precision: str = "bfloat16") -> Any:
    settings = SETTINGS[kind]
    return replace(settings, training=replace(settings.training, precision=precision))


def run_cases(
    group: Group, inputs: Path, folder: Path, cases: Mapping[str, tuple[str, Sharding]]
) -> None:
    """Stages in the processes of one group."""
    for name, (kind, sharding) in cases.items():
        place = folder / name if group.rank == 0 else folder / f"{name}-{group.rank}"
        job = toy_job(
            kind, inputs, place, chosen(kind),
            numerics=NUMERICS, ranks=group.ranks, sharding=sharding,
        )  # fmt: skip
        STAGES[kind]._run(group, replace(job, scratch=folder / name / "scratch"))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("toys") / "inputs")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, inputs: Path) -> Path:
    """What one process makes."""
    folder = tmp_path_factory.mktemp("alone")
    launch(1, run_cases, inputs, folder, {kind: (kind, WHOLE) for kind in STAGES})
    return folder


def expect(folder: Path, alone: Path, cases: Mapping[str, tuple[str, Sharding]]) -> None:
    for name, (kind, _) in cases.items():
        expected = digests(alone / kind / "output")
        assert LEDGER in expected
        assert digests(folder / name / "output") == expected, name


def test_two_ranks_make_the_bytes_of_one(tmp_path: Path, inputs: Path, alone: Path) -> None:
    cases = {f"whole-{kind}": (kind, WHOLE) for kind in STAGES}
    cases |= {f"full-{kind}": (kind, FULL) for kind in STAGES}
    cases["model-pretrain"] = ("pretrain", MODEL)
    launch(2, run_cases, inputs, tmp_path, cases)
    expect(tmp_path, alone, cases)


def test_four_ranks_do_also_from_a_checkpoint_of_one(
    tmp_path: Path, inputs: Path, alone: Path
) -> None:
    """The float32 weights are what a checkpoint holds, not their copies."""
    shutil.copytree(alone / "pretrain" / "scratch", tmp_path / "resumed" / "scratch")
    shutil.rmtree(max((tmp_path / "resumed" / "scratch" / CHECKPOINTS).glob("step-*")))
    cases = {"hybrid": ("pretrain", HYBRID), "resumed": ("pretrain", FULL)}
    launch(4, run_cases, inputs, tmp_path, cases)
    expect(tmp_path, alone, cases)
    (tmp_path / "hybrid" / "scratch" / CHECKPOINTS / "step-00000006" / "state.json").unlink()
    launch(1, run_cases, inputs, tmp_path, {"hybrid": ("pretrain", WHOLE)})
    expect(tmp_path, alone, {"hybrid": ("pretrain", WHOLE)})


@pytest.mark.parametrize("kind", list(STAGES))
def test_it_is_float32_to_bfloat16s_rounding(
    tmp_path: Path, inputs: Path, alone: Path, kind: str
) -> None:
    """Weights stay float32; the first loss differs, by less than a few of its 8 bits."""
    job = toy_job(kind, inputs, tmp_path, chosen(kind, "float32"), numerics=NUMERICS)
    STAGES[kind].run(job)
    rounded = alone / kind / "output"
    weights = load_file(rounded / "model.safetensors")
    assert {item.dtype for item in weights.values()} == {torch.float32}
    assert any(not torch.equal(item, item.bfloat16().float()) for item in weights.values())
    norms = [
        json.loads((folder / STEPS).read_text().splitlines()[0])["grad_norm"]
        for folder in (job.output, rounded)
    ]
    assert norms[0] != norms[1]
    assert norms[1] == pytest.approx(norms[0], rel=0.05, abs=1e-5)
