"""Initialization and the mean of weights, against the published code's results too."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from model_helpers import SMALL, reference
from safetensors.torch import load_file

from instella.errors import VerificationError
from instella.model.convert import to_olmo
from instella.network.init import CUT, initialize, standard_deviation
from instella.network.merge import mean_state
from instella.network.network import Instella
from instella.recipe.settings import Model


def initialized(settings: Model, seed: int, dtype: torch.dtype = torch.float32) -> Instella:
    network = Instella(settings, "native-cpu").to(dtype)
    initialize(network, seed)
    return network


def test_standard_deviations_of_the_published_code():
    case = json.loads((reference("init_std") / "init_std.json").read_text())
    settings = Model(96, 144, 3, 4, 192, 32)
    states = [to_olmo(initialized(settings, seed).state_dict(), 3) for seed in range(case["seeds"])]
    for name, measured in case["parameters"].items():
        values = torch.stack([state[name] for state in states]).double()
        rms = values.square().mean().sqrt().item()
        assert rms == pytest.approx(measured["measured_root_mean_square"], rel=0.01), name
        if measured["nominal_sigma"] is not None:
            largest = values.abs().max().item() / measured["nominal_sigma"]
            assert 2.9 < largest <= 3.000001, name


def test_standard_deviation_by_name():
    shape = replace(SMALL, hidden_size=64, intermediate_size=256)
    assert standard_deviation("model.embed_tokens.weight", shape) == 1 / 8
    assert standard_deviation("lm_head.weight", shape) == 1 / 8
    assert standard_deviation("model.layers.1.mlp.up_proj.weight", shape) == 1 / 8
    assert standard_deviation("model.layers.1.self_attn.o_proj.weight", shape) == 1 / 16
    assert standard_deviation("model.layers.7.mlp.down_proj.weight", shape) == 1 / 64


def test_values_are_cut_and_norms_are_one():
    for name, parameter in initialized(SMALL, 5).named_parameters():
        if parameter.ndim == 1:
            assert (parameter == 1).all()
        else:
            assert parameter.abs().max() <= CUT * standard_deviation(name, SMALL) * (1 + 1e-6)


def test_stream_depends_on_seed_and_name_only():
    state = initialized(SMALL, 1).state_dict()
    deeper = initialized(replace(SMALL, num_hidden_layers=3), 1).state_dict()
    assert all(torch.equal(deeper[name], tensor) for name, tensor in state.items())
    half = initialized(SMALL, 1, torch.bfloat16).state_dict()
    assert all(torch.equal(half[name], t.to(torch.bfloat16)) for name, t in state.items())
    other = initialized(SMALL, 2).state_dict()
    assert not torch.equal(other["lm_head.weight"], state["lm_head.weight"])
    assert not torch.equal(
        state["model.layers.0.mlp.up_proj.weight"], state["model.layers.1.mlp.up_proj.weight"]
    )


def test_mean_of_the_published_script():
    """The published script sums in float32: ours is nearer, by at most one unit of a summand."""
    folder = reference("weight_average")
    states = [load_file(folder / f"input_seed_{seed}.safetensors") for seed in (5796, 6198, 8915)]
    mean = mean_state(states)
    want = load_file(folder / "merged.safetensors")
    assert mean.keys() == want.keys()
    for name, tensor in want.items():
        assert mean[name].dtype == tensor.dtype
        largest = torch.stack([state[name].abs() for state in states]).amax(0)
        assert bool(((mean[name] - tensor).abs().numpy() <= np.spacing(largest.numpy())).all()), (
            name
        )


def test_mean_is_rounded_once():
    big = torch.tensor([2.0**24])
    one = torch.ones(1)
    assert mean_state([{"w": x} for x in (big, one, one, -big)])["w"].item() == 0.5
    assert mean_state([{"w": big}])["w"].item() == 2.0**24
    thirds = [{"w": torch.tensor([value])} for value in (0.1, 0.2, 0.4)]
    exact = sum(float(np.float32(value)) for value in (0.1, 0.2, 0.4)) / 3
    assert mean_state(thirds)["w"].item() == float(np.float32(exact))


def test_mean_keeps_dtype():
    halves = [{"w": torch.tensor([value], dtype=torch.bfloat16)} for value in (1.0, 2.0)]
    assert mean_state(halves)["w"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"v": torch.ones(2)}, "v is not in all"),
        ({"w": torch.ones(3)}, r"\[3\]"),
        ({"w": torch.ones(2, dtype=torch.bfloat16)}, "bfloat16"),
    ],
)
def test_mean_of_unlike_states_is_refused(other, word):
    with pytest.raises(VerificationError, match=word):
        mean_state([{"w": torch.ones(2)}, other])
