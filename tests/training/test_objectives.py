import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from instella.errors import BadUse
from instella.training import preference_loss, sft_row
from instella.training.objectives import (
    group_advantages,
    label_logprobs,
    masked_loss,
    next_token_loss,
    next_token_normalizer,
    policy_loss,
    sequence_logprobs,
)

PLAIN = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 3.0, "kl_coefficient": 0.0}


def load_case(reference: Path) -> tuple[dict, torch.Tensor, torch.Tensor, torch.Tensor]:
    folder = reference / "train_model_a"
    losses = json.loads((folder / "train_loss.json").read_text())
    logits = torch.from_numpy(np.load(folder / "logits.npy"))
    ids = torch.from_numpy(np.load(folder / "input_ids.npy"))
    mask = torch.from_numpy(np.load(folder / "label_mask.npy"))
    return losses, logits, ids, mask


def test_pretraining_loss_equals_the_published_trainer(reference: Path) -> None:
    losses, logits, ids, _ = load_case(reference)
    tokens = next_token_normalizer(*ids.shape, "tokens")
    assert tokens == losses["plain"]["num_items_in_batch"]
    loss = next_token_loss(logits, ids, tokens).item()
    assert loss == pytest.approx(losses["plain"]["loss"], rel=1e-5)
    targets = next_token_loss(logits, ids, next_token_normalizer(*ids.shape, "targets")).item()
    assert targets == pytest.approx(F.cross_entropy(logits[:, :-1].mT, ids[:, 1:]).item())


@pytest.mark.parametrize("case", ["label_mask_normalised", "label_mask_not_normalised"])
def test_masked_loss_equals_the_published_trainer(reference: Path, case: str) -> None:
    losses, logits, ids, mask = load_case(reference)
    normalizer = losses[case]["num_items_in_batch"]
    if case == "label_mask_normalised":
        assert int(mask.sum()) == normalizer
    loss = masked_loss(logits, ids, mask, normalizer).item()
    assert loss == pytest.approx(losses[case]["loss"], rel=1e-5)


def test_preference_loss_from_averages(reference: Path) -> None:
    case = json.loads((reference / "dpo_norm" / "from_sums.json").read_text())
    names = ("policy_chosen", "policy_rejected", "reference_chosen", "reference_rejected")
    averages = []
    for name in names:
        lengths = torch.tensor(case[f"{name.split('_')[1]}_length"])
        averages.append((torch.tensor(case[f"{name}_sum"]) / lengths).requires_grad_())
    losses = preference_loss(*averages, case["beta"])
    assert losses.tolist() == pytest.approx(case["losses"], abs=1e-5)
    losses.mean().backward()
    for tensor, side in ((averages[0], "chosen"), (averages[1], "rejected")):
        expected = case[f"grad_loss_mean_wrt_policy_{side}_average"]
        assert tensor.grad.tolist() == pytest.approx(expected, abs=1e-5)


def test_preference_loss_from_logits_with_gradient(reference: Path) -> None:
    folder = reference / "dpo_norm"
    case = json.loads((folder / "from_logits.json").read_text())
    policy = torch.from_numpy(np.load(folder / "policy_logits.npy")).requires_grad_()
    frozen = torch.from_numpy(np.load(folder / "reference_logits.npy"))
    ids = torch.from_numpy(np.load(folder / "concatenated_input_ids.npy"))
    mask = torch.from_numpy(np.load(folder / "concatenated_labels.npy")) != -100
    assert mask[:, 1:].sum(1).tolist() == case["labelled_tokens"]
    new = sequence_logprobs(policy, ids, mask, average=True)
    old = sequence_logprobs(frozen, ids, mask, average=True)
    assert new[:4].tolist() == pytest.approx(case["policy_chosen_average"], abs=1e-5)
    assert old[4:].tolist() == pytest.approx(case["reference_rejected_average"], abs=1e-5)
    sums = sequence_logprobs(policy, ids, mask, average=False)
    assert sums[4:].tolist() == pytest.approx(case["policy_rejected_sum"], abs=1e-4)
    losses = preference_loss(new[:4], new[4:], old[:4], old[4:], case["beta"])
    assert losses.tolist() == pytest.approx(case["losses"], abs=1e-5)
    losses.mean().backward()
    expected = torch.from_numpy(np.load(folder / "grad_loss_mean_wrt_policy_logits.npy"))
    assert (policy.grad - expected).abs().max() < 1e-5


def test_a_row_without_labels_is_refused() -> None:
    mask = torch.tensor([[False, True, True], [True, False, False]])
    with pytest.raises(BadUse, match="row 1 of the batch has no label"):
        sequence_logprobs(torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.int64), mask, True)


def test_the_row_builder_is_offered() -> None:
    assert callable(sft_row)


def test_label_logprobs_are_log_softmax_at_the_next_token() -> None:
    logits = torch.randn(2, 4, 7, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[1, 2, 3, 4], [6, 5, 0, 1]])
    found = label_logprobs(logits, ids)
    for row in range(2):
        for place in range(3):
            expected = logits[row, place].log_softmax(0)[ids[row, place + 1]]
            assert found[row, place].item() == pytest.approx(expected.item(), abs=1e-6)


def one_token(difference: float, advantage: float, **options) -> tuple[float, float, dict]:
    """Loss and gradient with respect to the log-probability of a single token."""
    logprob = torch.tensor([[difference]], requires_grad=True)
    terms = policy_loss(
        logprob,
        torch.zeros(1, 1),
        options.pop("reference", None),
        torch.tensor([advantage]),
        torch.ones(1, 1, dtype=torch.bool),
        normalizer=1,
        **{**PLAIN, **options},
    )
    terms.loss.backward()
    return terms.loss.item(), logprob.grad.item(), terms.figures


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipped"),
    [
        (1.1, 1.0, -1.1, -1.1, 0.0),  # inside the clip
        (1.5, 1.0, -1.2, 0.0, 1.0),  # too far up with a good answer: held
        (0.5, 1.0, -0.5, -0.5, 0.0),  # too far down with a good answer: pulled back
        (0.5, -1.0, 0.8, 0.0, 1.0),  # too far down with a bad answer: held
        (1.5, -1.0, 1.5, 1.5, 0.0),  # too far up with a bad answer: pushed down
        (5.0, -1.0, 3.0, 0.0, 0.0),  # dual clip
    ],
)
def test_policy_loss_by_hand(ratio, advantage, loss, gradient, clipped) -> None:
    found, slope, figures = one_token(math.log(ratio), advantage)
    assert found == pytest.approx(loss, abs=1e-6)
    assert slope == pytest.approx(gradient, abs=1e-6)
    assert figures["clip_fraction"] == clipped
    assert figures["dual_clip_fraction"] == (1.0 if ratio == 5.0 else 0.0)
    assert figures["approximate_kl"] == pytest.approx(-math.log(ratio), abs=1e-6)


def test_unequal_clip() -> None:
    assert one_token(math.log(1.5), 1.0, clip_high=0.28)[0] == pytest.approx(-1.28)
    assert one_token(math.log(0.5), -1.0, clip_low=0.3)[0] == pytest.approx(0.7)


def test_kl_term_by_hand() -> None:
    loss, slope, figures = one_token(
        -0.5, 0.0, reference=torch.tensor([[-0.2]]), kl_coefficient=0.1
    )
    expected = math.exp(0.3) - 0.3 - 1
    assert figures["kl_loss"] == pytest.approx(expected, abs=1e-6)
    assert loss == pytest.approx(0.1 * expected, abs=1e-7)
    assert slope == pytest.approx(0.1 * (1 - math.exp(0.3)), abs=1e-6)


@pytest.mark.parametrize("difference", [-200.0, 200.0])
def test_huge_differences_stay_finite(difference: float) -> None:
    reference = torch.tensor([[-difference]])
    for advantage in (1.0, -1.0):
        loss, slope, figures = one_token(
            difference, advantage, reference=reference, kl_coefficient=0.001
        )
        assert math.isfinite(loss) and math.isfinite(slope)
        assert figures["kl_loss"] == 10.0


def test_policy_loss_is_a_mean_over_the_mini_batch_tokens_and_adds_up() -> None:
    generator = torch.Generator().manual_seed(3)
    new, old, frozen = (-torch.rand(4, 5, generator=generator) for _ in range(3))
    advantages = torch.tensor([1.0, -1.0, 0.5, -0.5])
    mask = torch.rand(4, 5, generator=generator) < 0.6
    new[~mask] = -1e4  # what stands on padding never counts
    tokens = int(mask.sum())
    options = {**PLAIN, "kl_coefficient": 0.5, "normalizer": tokens}
    whole = policy_loss(new, old, frozen, advantages, mask, **options)
    halves = [
        policy_loss(new[h], old[h], frozen[h], advantages[h], mask[h], **options)
        for h in (slice(2), slice(2, 4))
    ]
    ratio = torch.exp(new - old)
    plain, cut = -advantages[:, None] * ratio, -advantages[:, None] * ratio.clamp(0.8, 1.2)
    kl = torch.exp(frozen - new) - (frozen - new) - 1
    expected = ((torch.maximum(plain, cut) + 0.5 * kl)[mask].sum() / tokens).item()
    assert whole.loss.item() == pytest.approx(expected, rel=1e-5)
    assert sum(h.loss.item() for h in halves) == pytest.approx(expected, rel=1e-5)
    for name, value in whole.figures.items():
        assert sum(h.figures[name] for h in halves) == pytest.approx(value, abs=1e-9)


def test_group_advantages_equal_torch_std() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0], [0.1, 0.9, 0.4, 0.4, 0.3]])
    found = group_advantages(rewards, normalize_by_std=True)
    mean, std = rewards.mean(1, keepdim=True), rewards.std(1, keepdim=True)
    assert torch.allclose(found, (rewards - mean) / (std + 1e-6), atol=1e-6)
    assert torch.allclose(group_advantages(rewards, False), rewards - mean, atol=1e-7)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
def test_a_group_of_equal_rewards_gives_zeros(value: float) -> None:
    assert group_advantages([[value] * 3], True).tolist() == [[0.0, 0.0, 0.0]]


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(BadUse, match="n >= 2"):
        group_advantages([[1.0]], True)
