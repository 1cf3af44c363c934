"""Conversion to and from the training layout; logits tell the halves of ff_proj apart."""

import json

import pytest
import torch
from model_helpers import SMALL, array, randomize, reference
from safetensors.torch import load_file

from instella.errors import VerificationError
from instella.model.convert import from_olmo, to_olmo
from instella.network.network import Instella
from instella.recipe.settings import Model


def test_round_trip():
    network = Instella(SMALL, "native-cpu")
    randomize(network)
    state = network.state_dict()
    there = to_olmo(state, 2)
    assert there["transformer.blocks.1.att_proj.weight"].shape == (96, 32)
    assert torch.equal(
        there["transformer.blocks.0.ff_proj.weight"][:48],
        state["model.layers.0.mlp.up_proj.weight"],
    )
    back = from_olmo(there, 2)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())


def published_case():
    folder = reference("train_model_a")
    trained = load_file(folder / "train_state.safetensors")
    config = json.loads((folder / "train_config.json").read_text())
    shape = Model(
        hidden_size=config["d_model"],
        intermediate_size=config["mlp_hidden_size"] // 2,
        num_hidden_layers=config["n_layers"],
        num_attention_heads=config["n_heads"],
        vocab_size=config["embedding_size"],
        max_position_embeddings=config["max_sequence_length"],
    )
    return folder, trained, shape


def largest_difference(shape: Model, state, folder) -> float:
    network = Instella(shape, "native-cpu")
    network.load_state_dict(state)
    with torch.no_grad():
        logits = network(array(folder, "input_ids"))
    return (logits - array(folder, "logits")).abs().max().item()


def test_converted_checkpoint_gives_the_training_logits():
    folder, trained, shape = published_case()
    state = from_olmo(trained, shape.num_hidden_layers)
    published = load_file(folder / "model.safetensors")
    assert state.keys() == published.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in published.items())
    assert largest_difference(shape, state, folder) <= 5e-5
    again = to_olmo(state, shape.num_hidden_layers)
    assert all(torch.equal(again[name], tensor) for name, tensor in trained.items())


def test_swapped_gate_and_up_fail_the_logit_test():
    folder, trained, shape = published_case()
    swapped = {
        name: torch.cat(tensor.chunk(2)[::-1]) if "ff_proj" in name else tensor
        for name, tensor in trained.items()
    }
    assert largest_difference(shape, from_olmo(swapped, shape.num_hidden_layers), folder) > 1


def test_wrong_checkpoints_are_refused():
    state = to_olmo(Instella(SMALL, "native-cpu").state_dict(), 2)
    with pytest.raises(VerificationError, match=r"no tensor transformer\.blocks\.2"):
        from_olmo(state, 3)
    with pytest.raises(VerificationError, match="number of layers"):
        from_olmo(state, 1)
    name = "transformer.blocks.0.att_proj.weight"
    with pytest.raises(VerificationError, match="95 rows in 3 parts"):
        from_olmo({**state, name: state[name][:95]}, 2)
