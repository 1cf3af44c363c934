"""A sharded network trains to the bytes of one that every rank holds whole."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from stage_toys import SETTINGS, SHAPE, STAGES, digests, run_all, toy_job, write_inputs
from torch import nn

from instella.artifacts.job import Job
from instella.errors import BadUse
from instella.model.convert import from_olmo, to_olmo
from instella.network.folder import load_folder, save_folder
from instella.recipe.settings import Optimizer, Sharding
from instella.step_files import LEDGER
from instella.training.checkpoint import latest, part_name
from instella.training.loop import CHECKPOINTS
from instella.training.optimizer import AdamW, Part
from instella.training.processes import launch
from instella.training.reduction import ALONE, Group, Partial, Tree
from instella.training.sharding import _owners, lay_out

# No dimension is a multiple of four, so rows and vectors of the optimizer's kernel are cut unevenly.
ODD = replace(SHAPE, hidden_size=12, intermediate_size=18, vocab_size=17)
RECOMPUTED = replace(
    SETTINGS["pretrain"],
    training=replace(SETTINGS["pretrain"].training, activation_checkpointing=True),
)
FULL, MODEL = Sharding("full"), Sharding("full", wrap="model")
HYBRID = Sharding("hybrid", 2)
Cases = Mapping[str, tuple[str, Sharding]]


def run_cases(group: Group, inputs: Path, folder: Path, cases: Cases) -> None:
    """Stages in the processes of one group; ``odd`` and ``recomputed`` are kinds of pretraining."""
    for name, (kind, sharding) in cases.items():
        place = folder / name if group.rank == 0 else folder / f"{name}-{group.rank}"
        job = case_job(kind, inputs, place, ranks=group.ranks, sharding=sharding)
        STAGES[job.stage]._run(group, replace(job, scratch=folder / name / "scratch"))


def case_job(kind: str, inputs: Path, folder: Path, **changes: object) -> Job:
    chosen = RECOMPUTED if kind == "recomputed" else None
    job = toy_job(kind if kind in STAGES else "pretrain", inputs, folder, chosen, **changes)
    return replace(job, settings={**job.settings, "model": ODD}) if kind == "odd" else job


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("toys") / "inputs")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, inputs: Path) -> Path:
    """What one process makes that holds everything."""
    folder = tmp_path_factory.mktemp("alone")
    launch(1, run_all, inputs, folder)
    launch(1, run_cases, inputs, folder, {"odd": ("odd", Sharding())})
    shutil.copytree(folder / "pretrain" / "output", folder / "recomputed" / "output")
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, inputs: Path) -> Path:
    """What two ranks make, with their last checkpoints."""
    cases = {
        **{f"full-{kind}": (kind, FULL) for kind in (*STAGES, "odd", "recomputed")},
        "model-pretrain": ("pretrain", MODEL),
    }
    folder = tmp_path_factory.mktemp("two")
    launch(2, run_cases, inputs, folder, cases)
    return folder


def expect(folder: Path, alone: Path, names: list[str]) -> None:
    for name in names:
        expected = digests(alone / name.partition("-")[2] / "output")
        assert LEDGER in expected
        assert digests(folder / name / "output") == expected, name


def test_two_ranks_make_the_bytes_of_one(two: Path, alone: Path) -> None:
    """Weights, moments, step lines and the step ledger; activation checkpointing changes none."""
    names = sorted(path.name for path in two.iterdir() if (path / "output" / LEDGER).is_file())
    assert len(names) == 7
    expect(two, alone, names)


def test_a_sharded_checkpoint_is_written_in_parts(two: Path) -> None:
    found = latest(two / "full-pretrain" / "scratch" / CHECKPOINTS, print)
    assert found is not None and found.step == 6
    assert found.tensor_files == (part_name(0, 2), part_name(1, 2))
    sizes = [(found.folder / file).stat().st_size for file in found.tensor_files]
    assert max(sizes) < 1.3 * min(sizes)
    plain = latest(two / "full-policy" / "scratch" / CHECKPOINTS, print)
    assert plain is not None and plain.tensor_files == (
        "model.safetensors",
        "optimizer.safetensors",
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sharded_checkpoint_goes_to_olmos_layout_and_to_a_folder_and_back(
    tmp_path: Path, two: Path, alone: Path, dtype: torch.dtype
) -> None:
    """No byte and no dtype changes on the way; in float32 the folder is the published one."""
    found = latest(two / "full-pretrain" / "scratch" / CHECKPOINTS, print)
    assert found is not None
    state = {name: item.to(dtype) for name, item in found.model().items()}
    theirs = to_olmo(state, SHAPE.num_hidden_layers)
    save_file(theirs, tmp_path / "olmo.safetensors")
    back = from_olmo(load_file(tmp_path / "olmo.safetensors"), SHAPE.num_hidden_layers)
    published = alone / "pretrain" / "output"
    network = load_folder(published, "portable-x86")
    limit = SETTINGS["pretrain"].data.sequence_length
    for name, weights in (("one", back), ("two", None)):
        (tmp_path / name).mkdir()
        if weights is None:
            network = load_folder(tmp_path / "one", "portable-x86")
        save_folder(tmp_path / name, network, published, limit, state=weights)
    assert {item.dtype for item in network.state_dict().values()} == {dtype}
    assert all(torch.equal(item, state[name]) for name, item in network.state_dict().items())
    file = "model.safetensors"
    one, two_ = ((tmp_path / name / file).read_bytes() for name in ("one", "two"))
    assert one == two_
    assert (one == (published / file).read_bytes()) == (dtype == torch.float32)


def without_last(scratch: Path, copy: Path) -> None:
    """A scratch folder as a run left it that was killed before its last checkpoint."""
    shutil.copytree(scratch, copy)
    shutil.rmtree(max((copy / CHECKPOINTS).glob("step-*")))


def test_four_ranks_alone_and_from_the_checkpoint_of_two(
    tmp_path: Path, inputs: Path, two: Path, alone: Path
) -> None:
    """Two micro-batches an update, so ranks repeat others' or wait; then on one rank again."""
    for name in ("resumed-pretrain", "hybrid_resumed-odd", "whole_resumed-odd"):
        source = f"full-{name.partition('-')[2]}"
        without_last(two / source / "scratch", tmp_path / name / "scratch")
    cases = {
        "full-odd": ("odd", FULL),
        "full-preference": ("preference", FULL),
        "hybrid-odd": ("odd", HYBRID),
        "hybrid-finetune": ("finetune", HYBRID),
        "resumed-pretrain": ("pretrain", FULL),
        "hybrid_resumed-odd": ("odd", HYBRID),
    }
    launch(4, run_cases, inputs, tmp_path, cases)
    without_last(tmp_path / "hybrid-odd" / "scratch", tmp_path / "one_resumed-odd" / "scratch")
    single = {name: ("odd", Sharding()) for name in ("one_resumed-odd", "whole_resumed-odd")}
    launch(1, run_cases, inputs, tmp_path, single)
    expect(tmp_path, alone, [*cases, *single])


def test_an_update_of_parts_is_one_of_the_whole() -> None:
    """Every cut of every size up to some vectors, at which the kernel's rounding could change."""
    settings = Optimizer(learning_rate=0.01)
    generator = torch.Generator().manual_seed(0)
    for size in range(1, 40):
        whole = nn.ParameterDict({"w": nn.Parameter(torch.rand(size, generator=generator))})
        start = whole["w"].detach().clone()
        gradients = torch.rand(3, size, generator=generator) - 0.5
        optimizer = AdamW(whole, settings)
        for gradient in gradients:
            whole["w"].grad = gradient
            optimizer.update(0.01)
        expected = [
            whole["w"],
            *(optimizer.export_state()[f"{k}.w"] for k in ("exp_avg", "exp_avg_sq")),
        ]
        for first in range(size):
            for last in {first + 1, (first + size + 1) // 2, size}:
                part = nn.Parameter(start[first:last].clone())
                held = AdamW(whole, settings, [Part("w", part, first, torch.Size([size]))])
                for gradient in gradients:
                    part.grad = gradient[first:last].clone()
                    held.update(0.01)
                found = [part, *(held.export_state()[f"{k}.w"] for k in ("exp_avg", "exp_avg_sq"))]
                for left, right in zip(found, expected, strict=True):
                    assert torch.equal(left, right[first:last]), (size, first, last)


def scatter(group: Group, count: int) -> list[bytes]:
    generator = np.random.default_rng(group.rank)
    parts = torch.from_numpy(generator.standard_normal((group.ranks, count)).astype(np.float32))
    return [group.scatter_sum(parts).numpy().tobytes()]


def test_a_reduce_scatter_adds_along_the_tree() -> None:
    found = launch(4, scatter, 1000)
    tree = Tree()
    for rank in range(4):
        values = np.random.default_rng(rank).standard_normal((4, 1000)).astype(np.float32)
        tree.push(Partial([torch.from_numpy(values[0])], {}))
    assert found == [tree.root().gradients[0].numpy().tobytes()]


def test_owners_have_fair_shares() -> None:
    sizes = [5, 100, 40, 60, 3, 1, 1, 90]
    owners = _owners(sizes, 4)
    loads = [sum(s for s, o in zip(sizes, owners, strict=True) if o == rank) for rank in range(4)]
    assert sorted(loads) == [50, 60, 90, 100]


@pytest.mark.parametrize("ranks", [None, 2])
def test_groups_that_do_not_fit_are_refused(ranks: int | None) -> None:
    with pytest.raises(BadUse, match=rf"sharding.ranks is {ranks}: hybrid sharding over 1 ranks"):
        lay_out(nn.Linear(2, 2), ALONE, Sharding("hybrid", ranks))
