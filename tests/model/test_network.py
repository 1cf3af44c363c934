"""Shapes and names, positions, masks and the cache of the plain network."""

from dataclasses import replace

import pytest
import torch
from model_helpers import SMALL, randomize, run_python

from instella.canonical import sha256_bytes
from instella.errors import BadUse
from instella.network.network import Instella, RMSNorm
from instella.network.rope import rope_table, rotate
from instella.recipe.settings import Model
from instella.rollout.cache import RowCache

INSTELLA_3B = Model(2560, 6912, 36, 32, 50304, 4096)


@pytest.fixture(params=["native-cpu", "portable-x86"])
def network(request):
    network = Instella(SMALL, request.param)
    randomize(network)
    return network


def ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, 64, (batch, length), generator=torch.Generator().manual_seed(3))


def test_parameters_of_the_published_3b():
    with torch.device("meta"):
        state = Instella(INSTELLA_3B, "gfx942").state_dict()
    assert len(state) == 399
    assert sum(tensor.numel() for tensor in state.values()) == 3_112_675_840
    layer = "model.layers.35."
    shapes = {name.removeprefix(layer): list(t.shape) for name, t in state.items() if layer in name}
    assert shapes == {
        **{f"self_attn.{x}_proj.weight": [2560, 2560] for x in "qkvo"},
        **{f"self_attn.{x}_norm.weight": [2560] for x in "qk"},
        "mlp.gate_proj.weight": [6912, 2560],
        "mlp.up_proj.weight": [6912, 2560],
        "mlp.down_proj.weight": [2560, 6912],
        "pre_attention_layernorm.weight": [2560],
        "pre_feedforward_layernorm.weight": [2560],
    }
    assert {n: list(t.shape) for n, t in state.items() if ".layers." not in n} == {
        "model.embed_tokens.weight": [50304, 2560],
        "model.norm.weight": [2560],
        "lm_head.weight": [50304, 2560],
    }


def test_head_projects_the_hidden_states(network):
    x = ids(2, 9)
    assert torch.equal(network(x), network.lm_head(network.hidden(x)))


def test_both_classes_agree_within_rounding():
    networks = [Instella(SMALL, numerics) for numerics in ("native-cpu", "portable-x86")]
    for network in networks:
        randomize(network)
        network(ids(2, 9)).square().mean().backward()
    for ours, theirs in zip(*(n.parameters() for n in networks), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_future_tokens_and_other_rows_do_not_matter(network):
    x = ids(3, 12)
    changed = x.clone()
    changed[:, 8:] = 0
    torch.testing.assert_close(network(x)[:, :8], network(changed)[:, :8])
    torch.testing.assert_close(network(x)[1:2], network(x[1:2]))


def test_mask_and_positions_give_left_padding_its_meaning(network):
    x = ids(2, 7)
    padded = torch.cat([torch.ones(2, 3, dtype=torch.int64), x], dim=1)
    positions = (torch.arange(10) - 3).clamp(min=0)
    seen = torch.ones(10, 10, dtype=torch.bool).tril()
    seen[:, :3] = torch.eye(10, dtype=torch.bool)[:, :3]
    out = network(padded, positions, seen.view(1, 1, 10, 10))
    torch.testing.assert_close(out[:, 3:], network(x), rtol=1e-5, atol=1e-5)


def test_cached_tokens_equal_the_whole_sequence(network):
    x, length = ids(2, 10), 16
    whole = network(x)
    cache = RowCache(length)
    done = 0
    for tokens in (4, 1, 1, 3, 1):
        positions = torch.arange(done, done + tokens)
        keys = length if done else tokens
        mask = (torch.arange(keys) <= positions[:, None]).view(1, 1, tokens, keys)
        out = network(x[:, done : done + tokens], positions, mask, cache)
        torch.testing.assert_close(out, whole[:, done : done + tokens], rtol=1e-5, atol=2e-5)
        cache.advance(tokens)
        done += tokens


def test_norm_is_computed_in_float32_and_cast_before_the_weight():
    norm = RMSNorm(8, 1e-5).to(torch.bfloat16)
    randomize(norm)
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    wide = x.double()
    normed = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    assert torch.equal(norm(x), normed.to(torch.bfloat16) * norm.weight)


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(BadUse, match="num_attention_heads 3"):
        Instella(replace(SMALL, num_attention_heads=3), "native-cpu")
    with pytest.raises(BadUse, match="max_position_embeddings 40"):
        Instella(SMALL, "native-cpu")(ids(1, 41))


def test_rope_table_is_that_of_the_published_formula():
    for length, width, theta in ((4096, 80, 10000.0), (300, 16, 514640.0)):
        cosine, sine = rope_table(length, width, theta)
        frequencies = 1.0 / (theta ** (torch.arange(0, width, 2).float() / width))
        angles = torch.outer(torch.arange(length).float(), frequencies)
        half = width // 2
        # One unit in the last place of a frequency moves the angle at 4095 by 2.5e-4.
        torch.testing.assert_close(cosine[:, :half], angles.cos(), rtol=0, atol=5e-4)
        assert (cosine[:, :half] != angles.cos()).float().mean() < 0.1
        assert torch.equal(cosine[:, :half], cosine[:, half:])
        assert torch.equal(sine[:, :half], -sine[:, half:])
        torch.testing.assert_close(sine[:, half:], angles.sin(), rtol=0, atol=5e-4)


def test_rope_sine_and_cosine_are_correctly_rounded():
    cosine, sine = rope_table(20000, 2, 1.0)
    angles = torch.arange(20000, dtype=torch.float64)
    assert torch.equal(cosine[:, 0], angles.cos().float())
    assert torch.equal(sine[:, 1], angles.sin().float())


ROPE = """
from instella.network.rope import rope_table
from instella.canonical import sha256_bytes
print(sha256_bytes(b"".join(x.numpy().tobytes() for x in rope_table(4096, 80, 10000.0))))
"""
ROPE_DIGEST = "31a8b12bf400d06a782fdd54d35679028c7c0b165eed3e27c22b30ce45166d8d"


def test_rope_table_has_one_digest():
    parts = rope_table(4096, 80, 10000.0)
    assert sha256_bytes(b"".join(part.numpy().tobytes() for part in parts)) == ROPE_DIGEST
    other = {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA"}
    assert run_python(ROPE, ATEN_CPU_CAPABILITY="default", **other) == ROPE_DIGEST


def test_rotation_and_its_gradient():
    cosine, sine = (part[:5].unsqueeze(-2).double() for part in rope_table(40, 8, 10000.0))
    x = torch.randn(2, 5, 3, 8, dtype=torch.float64, requires_grad=True)
    first, second = x.chunk(2, -1)
    plain_cosine, plain_sine = cosine[..., :4], sine[..., 4:]
    want = torch.cat(
        (first * plain_cosine - second * plain_sine, second * plain_cosine + first * plain_sine), -1
    )
    torch.testing.assert_close(rotate(x, cosine, sine), want)
    assert torch.autograd.gradcheck(lambda y: rotate(y, cosine, sine), (x,))


def test_table_made_in_inference_mode_serves_training():
    shape = replace(SMALL, rope_theta=777.0)
    network = Instella(shape, "native-cpu")
    with torch.inference_mode():
        network(ids(1, 4))
    network(ids(1, 4)).sum().backward()
    assert network.lm_head.weight.grad is not None
