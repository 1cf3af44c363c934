import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_helpers import NUMERICS, SmallNetwork

from instella.errors import BadUse
from instella.network.network import Instella
from instella.recipe.settings import LOGITS_AT_ONCE, Model, Optimizer, Schedule
from instella.training.loop import Trainer
from instella.training.objectives import label_logprobs, next_token_normalizer, summed_loss
from instella.training.projection import (
    needed_columns,
    network_logprobs,
    recompute_activations,
)
from instella.training.reduction import ordered_sum

FIELDS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
    "max_position_embeddings", "rope_theta", "rms_norm_eps",
)  # fmt: skip


@pytest.fixture
def published(reference: Path) -> Instella:
    folder = reference / "train_model_a"
    config = json.loads((folder / "config.json").read_text())
    network = Instella(Model(**{name: config[name] for name in FIELDS}), NUMERICS)
    network.load_state_dict(load_file(folder / "model.safetensors"))
    return network


@pytest.mark.parametrize("micro_batch", [1, 2])
@pytest.mark.parametrize("case", ["plain", "label_mask_normalised", "label_mask_not_normalised"])
def test_loss_and_gradient_of_the_published_trainer(
    reference: Path, published: Instella, case: str, micro_batch: int
) -> None:
    folder = reference / "train_model_a"
    expected = json.loads((folder / "train_loss.json").read_text())[case]
    ids = torch.from_numpy(np.load(folder / "input_ids.npy"))
    mask = torch.from_numpy(np.load(folder / "label_mask.npy"))
    divisor = expected["num_items_in_batch"]
    if case == "plain":
        mask = torch.ones_like(mask)
        assert divisor == next_token_normalizer(*ids.shape, "tokens")

    def loss(network, rows):
        logprobs = network_logprobs(network, ids[rows])
        value = summed_loss(logprobs, mask[rows]) / divisor
        masked = torch.where(mask[rows][:, 1:], logprobs, 0.0)
        return value, {"loss": -ordered_sum(masked) / divisor}

    trainer = Trainer(published, Optimizer(1e-3), Schedule("constant"), 1)
    figures = trainer.update(torch.arange(2).split(micro_batch), loss)
    assert figures.sums["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert figures.grad_norm == pytest.approx(expected["total_grad_norm"], rel=1e-5)


def gradients(
    network, ids: torch.Tensor, limit: int = LOGITS_AT_ONCE
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    network.zero_grad(set_to_none=True)
    logprobs = network_logprobs(network, ids, limit)
    summed_loss(logprobs).backward()
    return logprobs.detach(), [parameter.grad.clone() for parameter in network.parameters()]


def test_logprobs_are_those_of_the_logits(reference: Path, published: Instella) -> None:
    ids = torch.from_numpy(np.load(reference / "train_model_a" / "input_ids.npy"))
    logits = torch.from_numpy(np.load(reference / "train_model_a" / "logits.npy"))
    found = network_logprobs(published, ids).detach()
    assert (found - label_logprobs(logits, ids)).abs().max() < 5e-5


@pytest.mark.parametrize("limit", [1, 500, 1500])
def test_projection_in_parts(published: Instella, limit: int) -> None:
    ids = torch.randint(0, 128, (2, 13), generator=torch.Generator().manual_seed(0))
    whole, expected = gradients(published, ids)
    parts, found = gradients(published, ids, limit)
    assert torch.equal(parts, whole)
    for left, right in zip(found, expected, strict=True):
        assert torch.allclose(left, right, atol=1e-6, rtol=1e-5)
    repeated = gradients(published, ids, limit)[1]
    assert all(torch.equal(a, b) for a, b in zip(found, repeated, strict=True))


def test_recomputed_activations_give_the_same_bits(published: Instella) -> None:
    ids = torch.randint(0, 128, (2, 13), generator=torch.Generator().manual_seed(0))
    whole, expected = gradients(published, ids)
    recompute_activations(published)
    again, found = gradients(published, ids)
    assert torch.equal(again, whole)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_nothing_to_recompute_is_refused() -> None:
    with pytest.raises(BadUse, match="no list of layers"):
        recompute_activations(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("last", "length", "columns"), [(3, 512, 32), (31, 512, 32), (32, 512, 64), (99, 100, 100)]
)
def test_needed_columns(last: int, length: int, columns: int) -> None:
    mask = np.zeros((3, length), dtype=bool)
    mask[1, last] = True
    other = np.zeros_like(mask)
    other[0, 1] = True
    assert needed_columns(other, mask) == columns


def test_what_is_cut_off_changes_no_loss(published: Instella) -> None:
    ids = torch.randint(0, 128, (2, 40), generator=torch.Generator().manual_seed(0))
    mask = np.zeros((2, 40), dtype=bool)
    mask[:, 9:20] = True
    columns = needed_columns(mask)
    assert columns == 32
    labels = torch.from_numpy(mask)
    whole = summed_loss(network_logprobs(published, ids), labels)
    cut = summed_loss(network_logprobs(published, ids[:, :columns]), labels[:, :columns])
    assert cut.item() == pytest.approx(whole.item(), rel=1e-6)


def test_small_network_is_accepted() -> None:
    ids = torch.randint(0, 48, (2, 5))
    assert network_logprobs(SmallNetwork(), ids).shape == (2, 4)
