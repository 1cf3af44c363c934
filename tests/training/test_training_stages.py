"""The four stages on a tiny network and random tokens, through files only."""

import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stage_toys
import torch
from safetensors.torch import load_file
from stage_toys import job_in
from training_helpers import NUMERICS

from instella import canonical
from instella.artifacts.job import Job
from instella.errors import BadUse, VerificationError
from instella.network.folder import load_folder, save_folder
from instella.network.init import initialize
from instella.network.merge import mean_state
from instella.network.network import Instella
from instella.progress import Reporter
from instella.recipe.settings import (
    ChatData,
    Finetune,
    Model,
    Optimizer,
    Preference,
    Pretrain,
    PretrainData,
)
from instella.stages import finetune, merge, preference, pretrain

MODEL = Model(
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    vocab_size=48,
    max_position_embeddings=32,
)
TRAINING = replace(stage_toys.TRAINING, seed=1)
PRETRAIN = Pretrain(PretrainData(16, ()), replace(TRAINING, keep_optimizer=True), init_seed=3)
FINETUNE = Finetune(ChatData(24, ()), TRAINING, "pretrain")
GENTLE = replace(TRAINING, optimizer=Optimizer(learning_rate=0.003), epochs=5)
PREFERENCE = Preference(ChatData(24, ()), GENTLE, "sft")


class Stopped(Exception):
    pass


class StopAt(Reporter):
    def __init__(self, step: int) -> None:
        super().__init__("stage", stream=io.StringIO())
        self.stop = step

    def step(self, step: int, total: int, tokens: int = 0, **figures: float) -> None:
        if step == self.stop:
            raise Stopped


def job(
    folder: Path, settings: Mapping[str, Any], inputs: Mapping[str, Path], **changes: Any
) -> Job:
    return job_in(folder, "stage", settings, inputs, **changes)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: canonical.sha256_file(path) for path in folder.iterdir()}


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def summary(folder: Path) -> dict[str, Any]:
    return canonical.read_json(folder / "trainer.json")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        canonical.write_json(folder / name, {"name": name})
    canonical.write_json(folder / "report.json", {})
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    tokens = np.random.default_rng(0).integers(2, 20, 16 * 14 + 5)
    canonical.write_npy(folder / "tokens.npy", tokens.astype(np.uint16))
    return folder


def write_rows(folder: Path, prefix: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    ids = random.integers(2, 20, (10, 24)).astype(np.uint16)
    mask = np.zeros((10, 24), dtype=bool)
    for row, end in enumerate(random.integers(8, 24, 10)):
        mask[row, 6:end] = True
        ids[row, end:] = 1
    canonical.write_npy(folder / f"{prefix}input_ids.npy", ids)
    canonical.write_npy(folder / f"{prefix}label_mask.npy", mask)


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    write_rows(folder, "", 1)
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    write_rows(folder, "chosen_", 2)
    write_rows(folder, "rejected_", 3)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, text: Path, tokenizer: Path) -> Path:
    """A pretrained folder with its moments."""
    folder = tmp_path_factory.mktemp("base")
    settings = {"model": MODEL, "pretrain": PRETRAIN}
    pretrain.run(job(folder, settings, {"tokens": text, "tokenizer": tokenizer}))
    return folder / "output"


def test_pretrain_publishes_a_folder(base: Path, tokenizer: Path) -> None:
    rows = lines(base)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["epoch"] for row in rows] == [0, 0, 0, 1, 1, 1]
    assert {(row["tokens"], row["labels"]) for row in rows} == {(64, 60)}
    assert rows[0]["loss"] == pytest.approx(math.log(48) * 15 / 16, rel=0.1)
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert summary(base) == {
        "steps": 6,
        "epochs": 2,
        "tokens": 384,
        "first_loss": rows[0]["loss"],
        "final_loss": rows[-1]["loss"],
    }
    names = set(contents(base))
    assert names >= {"config.json", "model.safetensors", "optimizer.safetensors", "tokenizer.json"}
    assert "report.json" not in names
    assert canonical.sha256_file(base / "tokenizer.json") == canonical.sha256_file(
        tokenizer / "tokenizer.json"
    )


def test_pretrain_gives_the_same_bytes_with_two_ranks_and_after_a_stop(
    tmp_path: Path, base: Path, text: Path, tokenizer: Path
) -> None:
    settings = {"model": MODEL, "pretrain": PRETRAIN}
    inputs = {"tokens": text, "tokenizer": tokenizer}
    with pytest.raises(Stopped):
        pretrain.run(job(tmp_path, settings, inputs, report=StopAt(3)))
    pretrain.run(job(tmp_path, settings, inputs, ranks=2))
    assert contents(tmp_path / "output") == contents(base)


def test_stage_two_continues_the_moments(
    tmp_path: Path, base: Path, text: Path, tokenizer: Path
) -> None:
    training = replace(PRETRAIN.training, reset_optimizer=False)
    second = {"model": MODEL, "pretrain": replace(PRETRAIN, training=training, init="first")}
    inputs = {"tokens": text, "tokenizer": tokenizer, "init": base}
    pretrain.run(job(tmp_path / "kept", second, inputs))
    moments = load_file(tmp_path / "kept" / "output" / "optimizer.safetensors")
    assert moments["step"].tolist() == [12]
    training = replace(training, reset_optimizer=True)
    third = {"model": MODEL, "pretrain": replace(PRETRAIN, training=training, init="first")}
    pretrain.run(job(tmp_path / "reset", third, inputs))
    moments = load_file(tmp_path / "reset" / "output" / "optimizer.safetensors")
    assert moments["step"].tolist() == [6]
    kept, reset = (lines(tmp_path / name / "output") for name in ("kept", "reset"))
    assert kept[0]["loss"] == reset[0]["loss"]
    assert kept[1]["loss"] != reset[1]["loss"]


def test_moments_that_were_not_published_are_asked_for(
    tmp_path: Path, base: Path, text: Path, tokenizer: Path
) -> None:
    without = tmp_path / "without"
    without.mkdir()
    for path in base.iterdir():
        if path.name != "optimizer.safetensors":
            (without / path.name).write_bytes(path.read_bytes())
    training = replace(PRETRAIN.training, reset_optimizer=False)
    settings = {"model": MODEL, "pretrain": replace(PRETRAIN, training=training, init="first")}
    inputs = {"tokens": text, "tokenizer": tokenizer, "init": without}
    with pytest.raises(BadUse, match=r"optimizer\.safetensors: no moments .* keep_optimizer: true"):
        pretrain.run(job(tmp_path, settings, inputs))


def test_normalizer_targets_divides_by_the_terms(
    tmp_path: Path, base: Path, text: Path, tokenizer: Path
) -> None:
    settings = {"model": MODEL, "pretrain": replace(PRETRAIN, normalizer="targets")}
    pretrain.run(job(tmp_path, settings, {"tokens": text, "tokenizer": tokenizer}))
    first = lines(tmp_path / "output")[0]["loss"]
    assert first == pytest.approx(lines(base)[0]["loss"] * 16 / 15, rel=1e-12)


def test_merge_is_the_mean_in_the_given_order(tmp_path: Path, tokenizer: Path, base: Path) -> None:
    inputs = {}
    for seed in (5, 6, 7):
        network = Instella(MODEL, NUMERICS)
        initialize(network, seed)
        inputs[f"seed{seed}"] = tmp_path / f"seed{seed}"
        inputs[f"seed{seed}"].mkdir()
        save_folder(inputs[f"seed{seed}"], network, tokenizer, 32)
    order = ["seed6", "seed5", "seed7"]
    merge.run(job(tmp_path, {"order": order}, inputs))
    merged = load_file(tmp_path / "output" / "model.safetensors")
    states = [load_file(inputs[role] / "model.safetensors") for role in order]
    expected = mean_state(states)
    assert merged.keys() == expected.keys()
    for name, tensor in merged.items():
        assert torch.equal(tensor, expected[name]), name
        mean = sum(state[name].double() for state in states) / 3
        assert torch.allclose(tensor.double(), mean, rtol=1e-6, atol=1e-8), name
    assert summary(tmp_path / "output") == {"inputs": order}
    assert "tokenizer.json" in contents(tmp_path / "output")


def test_merge_refuses_other_shapes(tmp_path: Path, tokenizer: Path, base: Path) -> None:
    network = Instella(replace(MODEL, intermediate_size=32), NUMERICS)
    initialize(network, 0)
    (tmp_path / "other").mkdir()
    save_folder(tmp_path / "other", network, tokenizer, 32)
    inputs = {"a": base, "b": tmp_path / "other"}
    with pytest.raises(VerificationError, match="another shape of network"):
        merge.run(job(tmp_path, {"order": ["a", "b"]}, inputs))


def test_finetune(tmp_path: Path, base: Path, chat: Path) -> None:
    inputs = {"tokens": chat, "init": base}
    finetune.run(job(tmp_path / "straight", {"finetune": FINETUNE}, inputs))
    found = tmp_path / "straight" / "output"
    rows = lines(found)
    assert len(rows) == 4
    mask = np.load(chat / "label_mask.npy")
    assert rows[0]["labels"] < mask.sum()
    assert {row["tokens"] for row in rows} == {96}
    assert "optimizer.safetensors" not in contents(found)
    assert canonical.read_json(found / "config.json")["max_position_embeddings"] == 32
    for step in (1, 3):
        with pytest.raises(Stopped):
            stop = StopAt(step)
            finetune.run(job(tmp_path / "torn", {"finetune": FINETUNE}, inputs, report=stop))
    finetune.run(job(tmp_path / "torn", {"finetune": FINETUNE}, inputs))
    assert contents(tmp_path / "torn" / "output") == contents(found)


def test_finetune_by_hand(tmp_path: Path, base: Path, chat: Path) -> None:
    finetune.run(job(tmp_path, {"finetune": FINETUNE}, {"tokens": chat, "init": base}))
    network = load_folder(base, NUMERICS)
    order = np.arange(10, dtype=np.uint32)
    np.random.Generator(np.random.PCG64(1)).shuffle(order)
    ids = torch.from_numpy(np.load(chat / "input_ids.npy")[order[:4]].astype(np.int64))
    mask = torch.from_numpy(np.load(chat / "label_mask.npy")[order[:4]])
    targets = ids.masked_fill(~mask, -100)[:, 1:]
    logits = network(ids)[:, :-1]
    loss = torch.nn.functional.cross_entropy(logits.mT, targets).item()
    assert lines(tmp_path / "output")[0]["loss"] == pytest.approx(loss, rel=1e-5)


def test_sum_scales_the_gradient_and_not_the_figure(tmp_path: Path, base: Path, chat: Path) -> None:
    inputs = {"tokens": chat, "init": base}
    first = {}
    for name, settings in {
        "mean": FINETUNE,
        "sum": replace(FINETUNE, reduce_loss="sum", loss_scale=0.5),
    }.items():
        finetune.run(job(tmp_path / name, {"finetune": settings}, inputs))
        first[name] = lines(tmp_path / name / "output")[0]
    assert first["sum"]["loss"] == first["mean"]["loss"]
    ratio = first["sum"]["grad_norm"] / first["mean"]["grad_norm"]
    assert ratio == pytest.approx(0.5 * first["mean"]["labels"], rel=1e-5)


def test_a_longer_row_raises_the_position_limit(tmp_path: Path, base: Path) -> None:
    ids = np.full((4, 48), 3, dtype=np.uint16)
    mask = np.ones((4, 48), dtype=bool)
    canonical.write_npy(tmp_path / "input_ids.npy", ids)
    canonical.write_npy(tmp_path / "label_mask.npy", mask)
    settings = replace(FINETUNE, data=ChatData(48, ()))
    finetune.run(job(tmp_path, {"finetune": settings}, {"tokens": tmp_path, "init": base}))
    config = canonical.read_json(tmp_path / "output" / "config.json")
    assert config["max_position_embeddings"] == 48


def test_preference(tmp_path: Path, base: Path, pairs: Path) -> None:
    inputs = {"tokens": pairs, "init": base}
    settings = {"preference": PREFERENCE}
    preference.run(job(tmp_path / "straight", settings, inputs))
    found = tmp_path / "straight" / "output"
    rows = lines(found)
    assert rows[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert rows[-1]["accuracy"] > 0.5 and rows[-1]["margin"] > 0
    assert rows[0]["tokens"] == 2 * 4 * 24
    with pytest.raises(Stopped):
        preference.run(job(tmp_path / "torn", settings, inputs, report=StopAt(3)))
    kept = list((tmp_path / "torn" / "scratch").glob("reference-*.safetensors"))
    assert len(kept) == 1
    kept[0].write_bytes(kept[0].read_bytes()[:-1])
    preference.run(job(tmp_path / "torn", settings, inputs))
    assert contents(tmp_path / "torn" / "output") == contents(found)


def test_progress_names_the_stage(tmp_path: Path, base: Path, chat: Path) -> None:
    stream = io.StringIO()
    report = Reporter("sft", stream=stream)
    inputs = {"tokens": chat, "init": base}
    finetune.run(job(tmp_path, {"finetune": FINETUNE}, inputs, report=report))
    assert "sft: step 4/4  loss " in stream.getvalue()
