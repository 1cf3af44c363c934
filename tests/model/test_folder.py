"""A folder keeps every bit, has one possible content, and is refused when it is wrong."""

import json
import struct

import pytest
import torch
from model_helpers import SMALL, array, randomize, reference, tokenizer_files
from safetensors.torch import save_file

from instella import canonical
from instella.errors import VerificationError
from instella.network.folder import load_folder, save_folder
from instella.network.network import Instella


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "folder", tmp_path)


def write(folder, tmp_path, dtype=torch.float32):
    network = Instella(SMALL, "native-cpu")
    randomize(network)
    folder.mkdir()
    save_folder(folder, network.to(dtype), tokenizer_files(tmp_path / "tokenizer"), 32)
    return folder


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def shard(folder, cut=10):
    """Turn the folder's one file into two and an index; gives the index's content."""
    state = load_folder(folder, "native-cpu").state_dict()
    (folder / "model.safetensors").unlink()
    names = sorted(state)
    places = {}
    for number, part in enumerate((names[:cut], names[cut:]), start=1):
        file = f"model-{number}-of-2.safetensors"
        save_file({name: state[name] for name in part}, folder / file)
        places.update(dict.fromkeys(part, file))
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return index


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_round_trip_keeps_bits_and_bytes(tmp_path, dtype):
    first = write(tmp_path / "first", tmp_path, dtype)
    network = load_folder(first, "native-cpu")
    wanted = Instella(SMALL, "native-cpu")
    randomize(wanted)
    for name, tensor in wanted.to(dtype).state_dict().items():
        assert network.state_dict()[name].dtype == dtype
        assert torch.equal(network.state_dict()[name], tensor)
    assert network.settings.max_position_embeddings == 32
    assert all(parameter.requires_grad for parameter in network.parameters())
    second = tmp_path / "second"
    second.mkdir()
    save_folder(second, network, first, 32)
    names = sorted(path.name for path in first.iterdir())
    assert names == [
        "config.json", "generation_config.json", "model.safetensors", "special_tokens_map.json",
        "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_config_holds_what_published_ones_hold(folder):
    published = json.loads((reference("hf_model_a") / "config.json").read_text())
    ours = canonical.read_json(folder / "config.json")
    assert ours["dtype"] == "float32"
    assert set(published) - {"torch_dtype", "transformers_version"} <= set(ours)
    for key in ("architectures", "model_type", "bos_token_id", "eos_token_id", "pad_token_id"):
        assert ours[key] == published[key]


@pytest.mark.parametrize("name", ["hf_model_a", "hf_model_b"])
@pytest.mark.parametrize("numerics", ["native-cpu", "portable-x86"])
def test_published_folder_gives_published_logits(name, numerics):
    data = reference(name)
    network = load_folder(data, numerics)
    with torch.no_grad():
        logits = network(array(data, "input_ids"))
    torch.testing.assert_close(logits, array(data, "logits_eager"), rtol=0, atol=5e-5)


def test_shards_are_read(folder):
    whole = load_folder(folder, "native-cpu").state_dict()
    shard(folder)
    parts = load_folder(folder, "native-cpu").state_dict()
    assert all(torch.equal(parts[name], tensor) for name, tensor in whole.items())


def test_dtype_key_of_transformers_4_is_read(folder):
    change_config(folder, dtype=None, torch_dtype="float32", auto_map={"AutoModel": "evil.Evil"})
    load_folder(folder, "native-cpu")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "LlamaForCausalLM"),
        ({"model_type": "llama"}, "model_type"),
        ({"model_type": None}, "model_type"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"num_key_value_heads": 1}, "num_key_value_heads"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_scaling"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "yarn"),
        ({"rope_parameters": {"rope_theta": 5.0}}, "disagree"),
        ({"rope_theta": -1.0}, "rope_theta"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps"),
        ({"num_hidden_layers": 2**31 - 1}, "num_hidden_layers"),
        ({"hidden_size": "32"}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"dtype": "bfloat16"}, "dtype"),
        ({"vocab_size": 65}, r"shape \[64, 32\], not \[65, 32\]"),
        ({"num_hidden_layers": 3}, "11 tensors missing"),
        ({"num_hidden_layers": 1}, "11 tensors that do not belong"),
    ],
)
def test_wrong_configurations_are_refused(folder, changes, word):
    change_config(folder, **changes)
    with pytest.raises(VerificationError, match=word) as caught:
        load_folder(folder, "native-cpu")
    assert "\n" not in str(caught.value)


def test_a_number_too_large_for_a_float_is_refused(folder):
    path = folder / "config.json"
    theta = f'"rope_theta":{json.loads(path.read_text())["rope_theta"]}'
    assert theta in path.read_text()
    path.write_text(path.read_text().replace(theta, '"rope_theta":1e999'))
    with pytest.raises(VerificationError, match="1e999 is out of range"):
        load_folder(folder, "native-cpu")


def test_missing_files_are_refused(folder, tmp_path):
    (folder / "model.safetensors").unlink()
    with pytest.raises(VerificationError, match=r"model\.safetensors: no such file"):
        load_folder(folder, "native-cpu")
    with pytest.raises(VerificationError, match=r"config\.json: no such file"):
        load_folder(tmp_path, "native-cpu")


@pytest.mark.parametrize("damage", ["empty", "cut", "long header", "garbage"])
def test_broken_tensor_files_are_refused(folder, damage):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "cut": data[:-5],
            "long header": struct.pack("<Q", 2**40) + data[8:],
            "garbage": data[:8] + b"\xff" * (len(data) - 8),
        }[damage]
    )
    with pytest.raises(VerificationError, match="not a safetensors file"):
        load_folder(folder, "native-cpu")


def test_mixed_and_foreign_dtypes_are_refused(folder):
    state = load_folder(folder, "native-cpu").state_dict()
    state["lm_head.weight"] = state["lm_head.weight"].to(torch.bfloat16)
    save_file(state, folder / "model.safetensors")
    with pytest.raises(VerificationError, match="mixed"):
        load_folder(folder, "native-cpu")
    state["lm_head.weight"] = state["lm_head.weight"].to(torch.float64)
    save_file(state, folder / "model.safetensors")
    with pytest.raises(VerificationError, match="F64"):
        load_folder(folder, "native-cpu")


@pytest.mark.parametrize(
    "place",
    ["../model-1-of-2.safetensors", "/etc/passwd", "..", "", 7, "a" * 300, "a\0b", "\ud800"],
)
def test_files_outside_the_folder_are_refused(folder, place):
    index = shard(folder)
    index["weight_map"]["lm_head.weight"] = place
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(VerificationError, match="not a file of this folder"):
        load_folder(folder, "native-cpu")


def test_index_and_shards_must_agree(folder):
    index = shard(folder)
    path = folder / "model.safetensors.index.json"
    first, second = "model-1-of-2.safetensors", "model-2-of-2.safetensors"
    moved = {**index["weight_map"], "lm_head.weight": second}
    path.write_text(json.dumps({"weight_map": moved}))
    with pytest.raises(VerificationError, match=r"lm_head\.weight"):
        load_folder(folder, "native-cpu")
    short = {name: file for name, file in index["weight_map"].items() if "norm" not in name}
    path.write_text(json.dumps({"weight_map": short}))
    with pytest.raises(VerificationError, match="tensors missing"):
        load_folder(folder, "native-cpu")
    path.write_text(json.dumps(index))
    (folder / first).unlink()
    with pytest.raises(VerificationError, match=f"{first}: no such file"):
        load_folder(folder, "native-cpu")


def test_a_tensor_in_two_shards_is_refused(folder):
    state = load_folder(folder, "native-cpu").state_dict()
    index = shard(folder)
    second = [name for name, file in index["weight_map"].items() if "-2-of" in file]
    doubled = {name: state[name] for name in [*second, "lm_head.weight"]}
    save_file(doubled, folder / "model-2-of-2.safetensors")
    with pytest.raises(VerificationError, match="do not belong"):
        load_folder(folder, "native-cpu")


def test_a_name_twice_in_the_index_is_refused(folder):
    index = shard(folder)
    text = json.dumps(index).replace('"weight_map": {', '"weight_map": {"lm_head.weight": "x", ')
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(VerificationError, match="twice"):
        load_folder(folder, "native-cpu")


def test_single_file_beside_an_index_is_refused(folder):
    shard(folder)
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(VerificationError, match="remove one"):
        load_folder(folder, "native-cpu")


def test_saving_needs_a_tokenizer_and_one_dtype(tmp_path):
    network = Instella(SMALL, "native-cpu")
    (tmp_path / "out").mkdir()
    with pytest.raises(VerificationError, match=r"tokenizer\.json: no such file"):
        save_folder(tmp_path / "out", network, tmp_path, 32)
    network.lm_head.to(torch.bfloat16)
    with pytest.raises(VerificationError, match="bfloat16 and float32"):
        save_folder(tmp_path / "out", network, tmp_path, 32)
