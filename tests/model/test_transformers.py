"""The transformers class: published numbers, generation, round trips, no remote code."""

import json

import pytest
import torch
from model_helpers import SMALL, array, randomize, reference, tokenizer_files
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from instella.errors import BadUse, VerificationError
from instella.model import InstellaConfig, InstellaForCausalLM
from instella.network.folder import load_folder, save_folder
from instella.network.network import Instella

CASES = pytest.mark.parametrize("name", ["hf_model_a", "hf_model_b"])
ATTENTION = pytest.mark.parametrize("attention", ["sdpa", "eager"])


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=5e-5)


@pytest.fixture
def folder(tmp_path):
    network = Instella(SMALL, "native-cpu")
    randomize(network)
    out = tmp_path / "folder"
    out.mkdir()
    save_folder(out, network, tokenizer_files(tmp_path / "tokenizer"), 40)
    return out


@CASES
@ATTENTION
def test_logits_states_and_losses(name, attention):
    data = reference(name)
    model = AutoModelForCausalLM.from_pretrained(data, attn_implementation=attention)
    assert isinstance(model, InstellaForCausalLM)
    summary = json.loads((data / "summary.json").read_text())
    ids = array(data, "input_ids")
    with torch.no_grad():
        out = model(ids, labels=ids, output_hidden_states=True)
        masked = model(ids, labels=array(data, "labels_masked"))
    close(out.logits, array(data, f"logits_{attention}"))
    close(torch.stack(out.hidden_states), array(data, "hidden_states"))
    assert out.loss.item() == pytest.approx(summary["loss_labels_equal_input_ids"], rel=1e-5)
    assert masked.loss.item() == pytest.approx(summary["loss_labels_masked"], rel=1e-5)


@CASES
@ATTENTION
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(name, attention, side):
    data = reference(name)
    model = AutoModelForCausalLM.from_pretrained(data, attn_implementation=attention)
    mask = array(data, f"attention_mask_{side}_pad")
    with torch.no_grad():
        logits = model(array(data, f"input_ids_{side}_pad"), attention_mask=mask).logits
    kept = mask.bool()
    close(logits[kept], array(data, f"logits_eager_{side}_pad")[kept])


@CASES
@pytest.mark.parametrize("padding", ["", "left_pad_"])
@pytest.mark.parametrize("cache", ["dynamic", "static", None])
def test_greedy_generation(name, padding, cache):
    data = reference(name)
    model = AutoModelForCausalLM.from_pretrained(data)
    suffix = "_left_pad" if padding else ""
    ids = array(data, f"input_ids{suffix}")
    mask = array(data, f"attention_mask{suffix}") if padding else torch.ones_like(ids)
    out = model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=12,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        **({"use_cache": False} if cache is None else {"cache_implementation": cache}),
    )
    assert torch.equal(out.sequences[:, ids.shape[1] :], array(data, f"greedy_{padding}tokens"))
    close(torch.stack(out.logits, dim=1), array(data, f"greedy_{padding}logits"))


@CASES
def test_bfloat16(name):
    data = reference(name)
    model = AutoModelForCausalLM.from_pretrained(data, dtype=torch.bfloat16)
    with torch.no_grad():
        logits = model(array(data, "input_ids")).logits
    assert logits.dtype == torch.bfloat16
    want = array(data, "logits_eager_bf16_as_fp32")
    assert (logits.float() - want).abs().mean() <= 0.02 * want.std()


def test_our_folder_loads_without_remote_code(folder):
    path = folder / "config.json"
    remote = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": remote}))
    (folder / "evil.py").write_text("raise SystemExit('remote code ran')\n")
    for trust in (None, False, True):
        model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=trust)
        assert type(model) is InstellaForCausalLM
        assert type(AutoConfig.from_pretrained(folder, trust_remote_code=trust)) is InstellaConfig
    ids = torch.arange(12).view(2, 6) + 2
    plain = load_folder(folder, "native-cpu")
    with torch.no_grad():
        assert torch.equal(model(ids).logits, plain(ids))
    assert (model.config.eos_token_id, model.generation_config.pad_token_id) == (0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_save_and_load_keep_dtype_and_bits(folder, tmp_path, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model.save_pretrained(tmp_path / "saved")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    ours = load_folder(tmp_path / "saved", "native-cpu")
    file = load_file(tmp_path / "saved" / "model.safetensors")
    assert file.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == dtype
        for other in (again.state_dict()[name], ours.state_dict()[name], file[name]):
            assert other.dtype == dtype
            assert torch.equal(other, tensor)
    assert ours.settings == load_folder(folder, "native-cpu").settings
    assert again.config.settings() == ours.settings


def test_saved_shards_are_read(folder, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.save_pretrained(tmp_path / "saved", max_shard_size="20KB")
    assert (tmp_path / "saved" / "model.safetensors.index.json").is_file()
    state = load_folder(tmp_path / "saved", "native-cpu").state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


def test_fresh_model_trains_and_gives_tuples():
    config = InstellaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=16, use_cache=False,
    )  # fmt: skip
    model = InstellaForCausalLM(config)
    assert (model.model.norm.weight == 1).all()
    ids = torch.arange(10).view(1, 10)
    loss, logits = model(ids, labels=ids, return_dict=False)
    loss.backward()
    assert logits.shape == (1, 10, 64)
    assert all(p.grad is not None for p in model.parameters())
    last = model(inputs_embeds=model.get_input_embeddings()(ids), logits_to_keep=1).logits
    torch.testing.assert_close(last, logits[:, -1:])


def test_what_the_network_is_not_is_refused():
    small = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    for changes, word in (
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"num_key_value_heads": 1}, "num_key_value_heads"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "linear"),
    ):
        with pytest.raises(VerificationError, match=word):
            InstellaForCausalLM(InstellaConfig(**small, **changes))
    model = InstellaForCausalLM(InstellaConfig(**small, intermediate_size=16))
    with pytest.raises(BadUse, match="either"):
        model()
    with pytest.raises(BadUse, match="weights"):
        model(torch.ones(1, 3, dtype=torch.int64), output_attentions=True)
