"""Compiled layers: eager's values to rounding, the same bytes each time and on any ranks."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from stage_toys import SETTINGS, STAGES, digests, toy_job, write_inputs
from training_helpers import SmallNetwork

from instella.errors import BadUse
from instella.recipe.settings import Sharding
from instella.step_files import STEPS
from instella.training.compiling import compile_layers
from instella.training.loop import CHECKPOINTS
from instella.training.processes import launch
from instella.training.reduction import Group

NUMERICS = "native-cpu"
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or " " in torch.__file__,
    reason="no C++ compiler here, or one that torch cannot call from a folder with a blank",
)


def run(
    group: Group, inputs: Path, folder: Path, cases: Mapping[str, tuple[bool, Sharding]]
) -> None:
    """Pretraining with activation checkpointing, compiled or not."""
    for name, (compiled, sharding) in cases.items():
        place = folder / name if group.rank == 0 else folder / f"{name}-{group.rank}"
        settings = SETTINGS["pretrain"]
        training = replace(settings.training, compile=compiled, activation_checkpointing=True)
        job = toy_job(
            "pretrain", inputs, place, replace(settings, training=training),
            numerics=NUMERICS, ranks=group.ranks, sharding=sharding,
        )  # fmt: skip
        STAGES["pretrain"]._run(group, replace(job, scratch=folder / name / "scratch"))


@needs_compiler
def test_compiled_layers(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "inputs")
    whole = Sharding()
    launch(1, run, inputs, tmp_path, {"eager": (False, whole), "one": (True, whole)})
    shutil.copytree(tmp_path / "one" / "scratch", tmp_path / "resumed" / "scratch")
    shutil.rmtree(max((tmp_path / "resumed" / "scratch" / CHECKPOINTS).glob("step-*")))
    shutil.rmtree(tmp_path / "resumed" / "scratch" / "compiled")
    launch(2, run, inputs, tmp_path, {"full": (True, Sharding("full")), "resumed": (True, whole)})
    expected = digests(tmp_path / "one" / "output")
    for name in ("full", "resumed"):
        assert digests(tmp_path / name / "output") == expected, name
    losses = [
        [json.loads(line)["loss"] for line in (tmp_path / name / "output" / STEPS).open()]
        for name in ("eager", "one")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert list((tmp_path / "one" / "scratch" / "compiled").rglob("*.so"))


@needs_compiler
@pytest.mark.parametrize("name", ["a blank", "a'quote"])
def test_a_path_that_the_compiler_would_cut_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadUse, match="torch hands this path to the compiler as it is"):
        compile_layers(SmallNetwork(), tmp_path / name)


def test_without_a_compiler_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadUse, match=r"compile: g\+\+ is not here: install a C\+\+ compiler"):
        compile_layers(SmallNetwork(), tmp_path)
