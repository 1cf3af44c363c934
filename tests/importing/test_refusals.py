"""A folder that is not what it should be is refused in one line, and nothing is kept of it."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from instella.errors import KitError, VerificationError
from instella.importing import folder as room
from instella.importing.take import take_in

from .published import (
    INDEX,
    SHARDS,
    TEXT,
    Place,
    change_json,
    make_place,
    read_tensors,
    write_shards,
)


def contents(place: Place) -> set[Path]:
    """Everything but empty folders and locks."""
    found = {path for path in place.folder.rglob("*") if path.is_file()}
    return {path for path in found if path.parent.name != "locks"}


def refused(place: Place, folder: Path, stage: str = "sft") -> str:
    """The line of the refusal; the store is as it was."""
    before = contents(place)
    with pytest.raises(KitError) as caught:
        take_in(place.recipe, stage, folder, place.workspace, place.toolchain())
    text = str(caught.value)
    assert "\n" not in text and str(place.folder / "store") not in text
    assert contents(place) == before
    return text


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"hidden_size": 64}, "hidden_size is 64, the recipe's model has 32"),
        ({"intermediate_size": 95}, "intermediate_size is 95"),
        ({"num_hidden_layers": 3}, "num_hidden_layers is 3"),
        ({"num_attention_heads": 4, "num_key_value_heads": 4}, "num_attention_heads is 4"),
        ({"vocab_size": 513}, "vocab_size is 513"),
        ({"rope_theta": 514640.0}, "rope_theta is 514640.0"),
        ({"rms_norm_eps": 1e-6}, "rms_norm_eps is 1e-06"),
        ({"bos_token_id": 1}, "bos_token_id is 1, the recipe's tokenizer has 0"),
        ({"eos_token_id": 50279}, "eos_token_id is 50279"),
        ({"eos_token_id": False}, "eos_token_id is False"),
        ({"eos_token_id": [0, 2]}, "eos_token_id is [0, 2]"),
        ({"pad_token_id": None}, "pad_token_id is None"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
        ({"model_type": "olmo2"}, "model_type is 'olmo2'"),
        ({"architectures": ["Evil"]}, "architectures"),
        ({"torch_dtype": "float32"}, "torch_dtype is 'float32', the tensors are bfloat16"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling"),
    ],
)
def test_configuration(place: Place, folder: Path, changes: dict[str, Any], part: str) -> None:
    change_json(folder / "config.json", **changes)
    text = refused(place, folder)
    assert part in text and text.startswith(f"{folder}/config.json: ")


def test_a_longer_context_is_no_difference(place: Place, folder: Path) -> None:
    change_json(folder / "config.json", max_position_embeddings=32768)
    taken = take_in(place.recipe, "math_sft2", folder, place.workspace, place.toolchain())
    assert taken.weights.max_positions == 32768


Tensors = dict[str, torch.Tensor]
HEAD, NORM = "lm_head.weight", "model.norm.weight"


def without_head(state: Tensors) -> None:
    del state[HEAD]


def extra(state: Tensors) -> None:
    state["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(32, dtype=torch.bfloat16)


def turned(state: Tensors) -> None:
    name = "model.layers.1.mlp.down_proj.weight"
    state[name] = state[name].T.contiguous()


def mixed(state: Tensors) -> None:
    state[NORM] = state[NORM].float()


def foreign(state: Tensors) -> None:
    state[NORM] = state[NORM].double()


def integers(state: Tensors) -> None:
    state[NORM] = state[NORM].to(torch.int32)


def not_a_number(state: Tensors) -> None:
    state[NORM][3] = torch.nan


def infinite(state: Tensors) -> None:
    state["model.layers.1.mlp.up_proj.weight"][5, 7] = -torch.inf


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (without_head, "1 tensors missing, as lm_head.weight"),
        (extra, "1 tensors that do not belong there, as model.layers.0.self_attn.q_proj.bias"),
        (turned, "model.layers.1.mlp.down_proj.weight: shape [96, 32], not [32, 96]"),
        (mixed, "bfloat16 and torch.float32 are mixed"),
        (foreign, "model.norm.weight: dtype F64"),
        (integers, "model.norm.weight: dtype I32"),
        (not_a_number, "model.norm.weight holds NaN or an infinity"),
        (infinite, "model.layers.1.mlp.up_proj.weight holds NaN or an infinity"),
    ],
)
def test_tensors(place: Place, folder: Path, change: Callable[[Tensors], None], part: str) -> None:
    state = {name: tensor.clone() for name, tensor in read_tensors(folder).items()}
    change(state)
    write_shards(folder, state)
    assert part in refused(place, folder)


def test_a_tensor_in_two_shards(place: Place, folder: Path) -> None:
    state = read_tensors(folder)
    second = json.loads((folder / INDEX).read_bytes())["weight_map"]
    doubled = {name for name, file in second.items() if file == SHARDS[1]} | {HEAD}
    save_file({name: state[name] for name in doubled}, folder / SHARDS[1])
    assert "lm_head.weight" in refused(place, folder)


def test_a_name_twice_in_a_header(place: Place, folder: Path) -> None:
    path = folder / SHARDS[0]
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = data[8 : 8 + size].decode().rstrip()
    entry = f',"{HEAD}":{{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}}}'
    header = header[:-1] + entry
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + data[8 + size :])
    assert "not a safetensors file" in refused(place, folder)


@pytest.mark.parametrize("size", [2**63, 100_000_001])
def test_a_huge_header(place: Place, folder: Path, size: int) -> None:
    path = folder / SHARDS[0]
    path.write_bytes(struct.pack("<Q", size) + path.read_bytes()[8:])
    assert "bad length of the header" in refused(place, folder)


@pytest.mark.parametrize(
    "file",
    ["../model-00001-of-00002.safetensors", "/etc/passwd", "gone.safetensors", 7, "config.json"],
)
def test_shards_outside_the_folder(place: Place, folder: Path, file: Any) -> None:
    index = json.loads((folder / INDEX).read_bytes())
    index["weight_map"][NORM] = file
    (folder / INDEX).write_text(json.dumps(index))
    (folder.parent / SHARDS[0]).write_bytes((folder / SHARDS[0]).read_bytes())
    assert "is not a .safetensors file of the folder" in refused(place, folder)


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', "{"])
def test_a_broken_index(place: Place, folder: Path, content: str) -> None:
    (folder / INDEX).write_text(content)
    assert f"{folder}/{INDEX}: " in refused(place, folder)


def test_pickled_weights_are_not_read(place: Place, folder: Path) -> None:
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    assert "there are no weights" in refused(place, folder)
    (folder / "pytorch_model-00001-of-00002.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    text = refused(place, folder)
    assert "weights are pickled ('pytorch_model-00001-of-00002.bin')" in text


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_missing_files(place: Place, folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert f"no {name}" in refused(place, folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", SHARDS[0], INDEX])
def test_links_out_of_the_folder(place: Place, folder: Path, name: str, tmp_path: Path) -> None:
    (folder / name).rename(tmp_path / "outside")
    (folder / name).symlink_to(tmp_path / "outside")
    assert f"{name}: a link out of the folder" in refused(place, folder)


def test_links_of_the_hubs_cache_are_followed(place: Place, folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "models--amd--Instella-3B"
    snapshot = home / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (home / "blobs").mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(home / "blobs" / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    take_in(place.recipe, "sft", snapshot, place.workspace, place.toolchain())
    (home / "blobs" / "secret").symlink_to("/etc/passwd")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to("../../blobs/secret")
    assert "a link out of the folder" in refused(place, snapshot)


def test_pipes_loops_and_folders(place: Place, folder: Path) -> None:
    path = folder / "config.json"
    path.unlink()
    os.mkfifo(path)
    assert "config.json: not a plain file" in refused(place, folder)
    path.unlink()
    path.symlink_to("config.json")
    assert "config.json: not a plain file" in refused(place, folder)
    path.unlink()
    path.mkdir()
    assert "config.json: not a plain file" in refused(place, folder)


def test_sizes(place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_HEADER_BYTES", 4096)
    with (folder / SHARDS[1]).open("ab") as file:
        file.truncate(10**12)
    assert "1,000,000,000,000 bytes, more than" in refused(place, folder)
    with (folder / "tokenizer.json").open("ab") as file:
        file.truncate(room.MAX_TEXT_BYTES + 1)
    assert "tokenizer.json: 67,108,865 bytes" in refused(place, folder)


def edit_tokenizer(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "tokenizer.json"
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value))


def swap_ids(value: dict[str, Any]) -> None:
    vocabulary = value["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]


def added(value: dict[str, Any]) -> None:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    value["added_tokens"].append({"id": 510, "content": "[PAD]", "special": True, **flags})


def ordinary(value: dict[str, Any]) -> None:
    value["added_tokens"][1]["special"] = False


def merges_turned(value: dict[str, Any]) -> None:
    value["model"]["merges"][:2] = reversed(value["model"]["merges"][:2])


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (swap_ids, "2 tokens differ from the recipe's tokenizer, as 'a'"),
        (
            added,
            "1 tokens differ from the recipe's tokenizer, as '[PAD]': id here 278, there missing",
        ),
        (ordinary, "added_tokens differs"),
        (merges_turned, "model.merges differs"),
        (lambda value: value.update(normalizer=None), "normalizer differs"),
        (lambda value: value["pre_tokenizer"]["pretokenizers"].pop(0), "pre_tokenizer differs"),
        (lambda value: value["model"].update(dropout=0.1), "dropout"),
        (lambda value: value.update(model=[]), "no tokenizer"),
        (lambda value: value["model"].update(type="Evil"), "not a tokenizer of the library"),
    ],
)
def test_tokenizers(
    place: Place, folder: Path, change: Callable[[dict[str, Any]], Any], part: str
) -> None:
    edit_tokenizer(folder, change)
    text = refused(place, folder)
    assert part in text and text.startswith(f"{folder}/tokenizer.json: ")


def test_offsets_are_no_difference(place: Place, folder: Path) -> None:
    def trim(value: dict[str, Any]) -> None:
        value["pre_tokenizer"]["pretokenizers"][1]["trim_offsets"] = False
        value["post_processor"]["trim_offsets"] = False

    edit_tokenizer(folder, trim)
    take_in(place.recipe, "sft", folder, place.workspace, place.toolchain())


def test_a_tokenizer_of_other_texts(place: Place, folder: Path, tmp_path: Path) -> None:
    other = make_place(tmp_path / "other", [*TEXT, "zebra quagga " * 300])
    text = refused(other, folder)
    assert "tokens differ from the recipe's tokenizer" in text


@pytest.mark.parametrize(
    ("file", "changes", "part"),
    [
        ("special_tokens_map.json", {"eos_token": "<|padding|>"}, "eos_token is '<|padding|>'"),
        ("special_tokens_map.json", {"pad_token": {"content": "[PAD]"}}, "'[PAD]' with id None"),
        ("special_tokens_map.json", {"bos_token": 7}, "bos_token is '7'"),
        ("tokenizer_config.json", {"pad_token": "<|endoftext|>"}, "pad_token"),
    ],
)
def test_special_tokens(
    place: Place, folder: Path, file: str, changes: dict[str, Any], part: str
) -> None:
    change_json(folder / file, **changes)
    assert part in refused(place, folder)


def test_chat_templates_are_compared_not_rendered(place: Place, folder: Path) -> None:
    def state() -> str:
        return take_in(
            place.recipe, "sft", folder, place.workspace, place.toolchain()
        ).chat_template

    path = folder / "tokenizer_config.json"
    assert state() == "differs"
    ours = json.loads((place.tokenizer() / path.name).read_bytes())["chat_template"]
    change_json(path, chat_template=ours)
    assert state() == "equal"
    (folder / "chat_template.jinja").write_text("{% for i in range(10**9) %}{% endfor %}")
    assert state() == "differs"
    (folder / "chat_template.jinja").unlink()
    change_json(path, chat_template=None)
    assert state() == "absent"


def test_a_tokenizer_config_that_is_no_object(place: Place, folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("[]")
    assert "not a JSON object" in refused(place, folder)


def test_a_damaged_tokenizer_of_the_run(place: Place, folder: Path) -> None:
    view = place.tokenizer() / "tokenizer.json"
    from instella.artifacts.manifest import read_manifest

    entry = read_manifest(place.workspace.manifest("tokenizer")).files["tokenizer.json"]
    path = place.workspace.store.object_path(entry.sha256)
    for item in (path, view):
        item.chmod(0o644)
        item.write_bytes(b"{}")
    with pytest.raises(VerificationError, match="run the stage tokenizer again"):
        take_in(place.recipe, "sft", folder, place.workspace, place.toolchain())
