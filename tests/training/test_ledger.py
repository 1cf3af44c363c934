"""The step ledger: its first different line and field say what differed."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from blake3 import blake3
from stage_toys import ANSWERS, SETTINGS, STAGES, STEPS, run_toy, write_inputs, write_prompts

from instella import canonical
from instella.merkle import tree_root
from instella.recipe.settings import Optimizer
from instella.training.generators import seed_generators
from instella.training.ledger import (
    Ledger,
    cursor_digest,
    numbers_digest,
    rng_digest,
    tensor_digest,
    tensors_digest,
)
from instella.training.order import epoch_order

NAME = "steps.ledger.jsonl"
Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("toys") / "inputs")


def every_line(kind: str, **changes: Any) -> Any:
    """Settings of a toy with tensors in every line."""
    chosen = SETTINGS[kind]
    return replace(chosen, training=replace(chosen.training, ledger_every=1, **changes))


def ledger(output: Path) -> Lines:
    return [json.loads(line) for line in (output / NAME).read_bytes().splitlines()]


def first_difference(left: Lines, right: Lines) -> tuple[int, set[str]]:
    """Number of the first line that differs, and its fields that do."""
    for one, other in zip(left, right, strict=True):
        if one != other:
            return one["step"], {name for name in one if one[name] != other[name]}
    raise AssertionError("the ledgers are equal")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, inputs: Path) -> Lines:
    folder = tmp_path_factory.mktemp("expected")
    return ledger(run_toy("pretrain", inputs, folder, every_line("pretrain")))


@pytest.mark.parametrize("kind", STAGES)
def test_each_kind_has_a_canonical_line_a_step_and_tensors_on_some(
    tmp_path: Path, inputs: Path, kind: str
) -> None:
    output = run_toy(kind, inputs, tmp_path)
    data = (output / NAME).read_bytes()
    lines = ledger(output)
    assert b"".join(map(canonical.json_bytes, lines)) == data
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert [line["step"] for line in lines if "tensors" in line] == [1, 4, STEPS]
    fields = {"step", "cursor", "rng", "loss", "rate"}
    if kind == "policy":
        fields |= {"rollout", "rewards"}
    assert all(line.keys() - {"tensors"} == fields for line in lines)
    for field in fields - {"step", "rewards"}:
        assert len({line[field] for line in lines}) == STEPS, field
    names = lines[0]["tensors"]["names"]
    parameters = {name.partition(".")[2] for name in names if name.startswith("parameter.")}
    assert "lm_head.weight" in parameters
    moments = {f"{moment}.{name}" for moment in ("exp_avg", "exp_avg_sq") for name in parameters}
    assert names.keys() == {"step", *moments, *(f"parameter.{name}" for name in parameters)}


def test_digests_are_those_of_the_published_tensors(tmp_path: Path, inputs: Path) -> None:
    from safetensors.torch import load_file

    output = run_toy("pretrain", inputs, tmp_path)
    last = ledger(output)[-1]["tensors"]
    weights = load_file(output / "model.safetensors")
    found = {f"parameter.{name.removeprefix('model.')}": item for name, item in weights.items()}
    found |= load_file(output / "optimizer.safetensors")
    by_tail = {tensor_digest(item) for item in found.values()}
    assert by_tail == set(last["names"].values())
    leaves = [canonical.json_bytes([name, last["names"][name]]) for name in sorted(last["names"])]
    assert last["root"] == tree_root(leaves).hex()


def test_a_flipped_token_shows_in_the_loss_of_the_step_that_takes_it(
    tmp_path: Path, inputs: Path, expected: Lines
) -> None:
    window = int(epoch_order(13, 11, 0)[9])  # the third step takes examples 8 to 11 of the order
    folder = tmp_path / "inputs"
    for name in ("pretrain", "tokenizer"):
        (folder / name).mkdir(parents=True)
        for path in (inputs / name).iterdir():
            (folder / name / path.name).write_bytes(path.read_bytes())
    tokens = np.load(folder / "pretrain" / "tokens.npy")
    tokens[window * 8 + 4] ^= 1
    canonical.write_npy(folder / "pretrain" / "tokens.npy", tokens)
    found = ledger(run_toy("pretrain", folder, tmp_path / "run", every_line("pretrain")))
    assert first_difference(expected, found) == (3, {"loss", "tensors"})


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (lambda: every_line("pretrain", optimizer=Optimizer(0.021)), {"rate", "tensors"}),
        (lambda: every_line("pretrain", optimizer=Optimizer(0.02, beta2=0.9)), {"tensors"}),
        (lambda: every_line("pretrain", seed=12), {"cursor", "rng", "loss", "tensors"}),
        (lambda: replace(every_line("pretrain"), init_seed=4), {"loss", "tensors"}),
    ],
    ids=["learning rate", "beta2", "seed", "init_seed"],
)
def test_a_changed_setting_shows_in_the_first_line_and_its_field(
    tmp_path: Path, inputs: Path, expected: Lines, change: Callable[[], Any], fields: set[str]
) -> None:
    found = ledger(run_toy("pretrain", inputs, tmp_path, change()))
    assert first_difference(expected, found) == (1, fields)


def test_a_shorter_schedule_shows_in_the_rate(
    tmp_path: Path, inputs: Path, expected: Lines
) -> None:
    found = ledger(run_toy("pretrain", inputs, tmp_path, every_line("pretrain", max_steps=5)))
    assert first_difference(expected[:5], found) == (1, {"rate", "tensors"})


def test_a_changed_gold_answer_shows_in_the_rewards(tmp_path: Path, inputs: Path) -> None:
    folder = tmp_path / "inputs"
    (folder / "policy").mkdir(parents=True)
    (folder / "start").symlink_to(inputs / "start")
    lines = []
    for answers in (ANSWERS, ("7", *ANSWERS[1:])):
        write_prompts(folder / "policy", answers, 6)
        place = tmp_path / answers[0]
        lines.append(ledger(run_toy("policy", folder, place, every_line("policy"))))
    changed = min(epoch_order(6, 11, 0).tolist().index(number) for number in (0, 4))
    step, fields = first_difference(*lines)
    assert step == changed // 2 + 1  # two prompts a step
    assert fields == {"rewards", "loss", "tensors"}


def test_a_draw_from_a_global_generator_shows(tmp_path: Path) -> None:
    def state() -> str:
        return rng_digest([["order", 1]])

    seed_generators(5, 0)
    before = state()
    for draw in (lambda: torch.rand(1), lambda: np.random.random(), lambda: random.random()):
        draw()
        assert state() != before
        seed_generators(5, 0)
        assert state() == before
    assert rng_digest([["order", 2]]) != before
    for seed, step in ((6, 0), (5, 1)):
        seed_generators(seed, step)
        assert state() != before


def test_dtype_shape_and_every_bit_count() -> None:
    tensor = torch.arange(12, dtype=torch.float32)
    changed = tensor.clone()
    changed.view(torch.int32)[11] ^= 1
    others = [
        tensor.view(torch.int32),
        tensor.view(3, 4),
        tensor.view(4, 3),
        changed,
        tensor.to(torch.bfloat16),
        torch.zeros(0),
        torch.zeros(0, 3),
        torch.tensor(0.0),
        torch.tensor(-0.0),
    ]
    assert len({tensor_digest(item) for item in [tensor, *others]}) == len(others) + 1
    turned = tensor.view(3, 4).T
    assert tensor_digest(turned) == tensor_digest(turned.contiguous())
    assert tensors_digest("rollout", [tensor]) != tensors_digest("rollout", [tensor, tensor])


def test_fields_are_separated_and_floats_exact() -> None:
    assert numbers_digest("loss", [0.1]) != numbers_digest("rate", [0.1])
    assert numbers_digest("loss", [0.1]) != numbers_digest("loss", [np.nextafter(0.1, 1).item()])
    assert numbers_digest("loss", [0.0]) != numbers_digest("loss", [-0.0])
    assert numbers_digest("loss", [1]) != numbers_digest("loss", [1.0])
    examples = np.arange(3, dtype=np.uint32)
    assert cursor_digest(0, examples) == cursor_digest(0, examples.astype(np.int64))
    assert cursor_digest(0, examples) != cursor_digest(1, examples)
    # as another program would compute it
    plain = blake3(derive_key_context="instella.ledger/1 tensor")
    plain.update(b'{"dtype":"float32","shape":[2]}\n' + b"\x00\x00\x80\x3f\x00\x00\x00\xc0")
    assert tensor_digest(torch.tensor([1.0, -2.0])) == plain.hexdigest()


def test_only_rank_0_pays() -> None:
    def refuse() -> Any:
        raise AssertionError("computed")

    idle = Ledger(1, 3, kept=False)
    idle.add(1, refuse, refuse)
    assert idle.lines == []
    kept = Ledger(2, 5, kept=True)
    for step in range(1, 6):
        due = step in (1, 2, 4, 5)
        kept.add(step, dict, (lambda: {"a": torch.zeros(1)}) if due else refuse)
    assert [b"tensors" in line for line in kept.lines] == [True, True, False, True, True]
