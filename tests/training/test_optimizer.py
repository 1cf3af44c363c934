import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from instella.errors import VerificationError
from instella.recipe.settings import Optimizer
from instella.training.optimizer import AdamW, clip

WHERE = Path("optimizer.safetensors")
RATE = 0.01


class Three(nn.Module):
    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor.clone()))


def small(seed: int = 0) -> Three:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"w": (5, 3), "norm": (3,)}
    return Three({name: torch.rand(shape, generator=generator) for name, shape in shapes.items()})


def step(network: nn.Module, optimizer: AdamW, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        parameter.grad = torch.rand(parameter.shape, generator=generator) - 0.5
    optimizer.update(RATE)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_clip_and_adamw_equal_the_published_ones(reference: Path, index: int) -> None:
    case = json.loads((reference / "clip_adamw" / "cases.json").read_text())["cases"][index]
    tensors = load_file(reference / "clip_adamw" / f"case{index}.safetensors")
    names = list(case["steps"][0]["grad_norms"])
    network = Three({name: tensors[f"step0.param.{name}"] for name in names})
    settings = Optimizer(
        learning_rate=case["lr"],
        beta1=case["betas"][0],
        beta2=case["betas"][1],
        epsilon=case["eps"],
        weight_decay=case["weight_decay"],
        max_grad_norm=case["max_grad_norm"],
    )
    optimizer = AdamW(network, settings)
    for number, expected in enumerate(case["steps"], 1):
        for name, parameter in network.named_parameters():
            parameter.grad = tensors[f"step{number}.grad_before.{name}"].clone()
        norm = clip(network.parameters(), settings.max_grad_norm)
        assert norm == pytest.approx(expected["total_grad_norm"], rel=1e-5)
        for name, parameter in network.named_parameters():
            after = tensors[f"step{number}.grad_after.{name}"]
            assert torch.allclose(parameter.grad, after, rtol=1e-5, atol=1e-8)
        optimizer.update(case["lr"])
        for name, parameter in network.named_parameters():
            after = tensors[f"step{number}.param.{name}"]
            assert torch.allclose(parameter, after, rtol=1e-5, atol=1e-7)


def test_no_limit_measures_only() -> None:
    network = small()
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 2.0)
    assert clip(network.parameters(), None) == pytest.approx((18 * 4.0) ** 0.5)
    assert all((parameter.grad == 2.0).all() for parameter in network.parameters())


def test_norm_of_an_infinite_gradient_is_told_and_clips_nothing() -> None:
    network = small()
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    network.w.grad[0, 0] = float("inf")
    assert clip(network.parameters(), 1.0) == float("inf")
    assert network.norm.grad.tolist() == [1.0, 1.0, 1.0]


def test_moments_and_step_continue_where_they_were() -> None:
    settings = Optimizer(learning_rate=0.01)
    straight, resumed = small(), small()
    first = AdamW(straight, settings)
    before = AdamW(resumed, settings)
    for seed in range(3):
        step(straight, first, seed)
        step(resumed, before, seed)
    state = {name: tensor.clone() for name, tensor in before.export_state().items()}
    assert state["step"].tolist() == [3]
    after = AdamW(resumed, settings)
    after.restore_state(state, WHERE)
    for seed in range(3, 5):
        step(straight, first, seed)
        step(resumed, after, seed)
    for left, right in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(left, right)
    assert after.export_state()["step"].tolist() == [5]


def test_forgetting_the_step_counter_would_show() -> None:
    settings = Optimizer(learning_rate=0.01)
    kept, lost = small(), small()
    optimizer = AdamW(kept, settings)
    step(kept, optimizer, 0)
    state = {name: tensor.clone() for name, tensor in optimizer.export_state().items()}
    lost.load_state_dict(kept.state_dict())
    state["step"] = torch.tensor([0])
    other = AdamW(lost, settings)
    other.restore_state(state, WHERE)
    step(kept, optimizer, 1)
    step(lost, other, 1)
    assert not torch.equal(kept.w, lost.w)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("exp_avg.w"), "tensor exp_avg.w is missing or unknown"),
        (lambda state: state.update(other=torch.zeros(1)), "tensor other is missing or unknown"),
        (lambda state: state.update({"exp_avg.w": torch.zeros(3, 5)}), r"exp_avg.w is .*\[3, 5\]"),
        (
            lambda state: state.update({"exp_avg_sq.w": torch.zeros(5, 3, dtype=torch.float64)}),
            "exp_avg_sq.w is torch.float64",
        ),
    ],
)
def test_foreign_moments_are_refused(change, message) -> None:
    network = small()
    optimizer = AdamW(network, Optimizer(learning_rate=0.01))
    state = optimizer.export_state()
    change(state)
    with pytest.raises(VerificationError, match=message):
        optimizer.restore_state(state, WHERE)
