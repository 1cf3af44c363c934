"""The portable product: same bits for threads, rows and instruction sets; right gradients."""

import numpy as np
import pytest
import torch
from model_helpers import PINS, product_digest, run_python

from instella.errors import BadUse, VerificationError
from instella.network import known_answer
from instella.network.product import (
    CHUNK,
    Linear,
    chain_product,
    portable,
    product_of,
    project,
    stock,
)
from instella.recipe.settings import Model

ODD_SHAPES = [
    (1, 7, 64), (5, 1, 700), (1, 1, 9), (2, 2, CHUNK), (3, 5, CHUNK + 1), (17, 96, 1600),
    (64, 64, 1024), (300, 2, CHUNK - 1),
]  # fmt: skip


def operands(rows: int, columns: int, depth: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows * columns + depth)
    return (
        torch.randn(rows, depth, generator=generator),
        torch.randn(columns, depth, generator=generator),
    )


@pytest.mark.parametrize("shape", ODD_SHAPES)
def test_equals_its_definition_and_float64(shape):
    known_answer.check_product(shape)
    left, right = operands(*shape)
    exact = left.double().numpy() @ right.double().numpy().T
    bound = 1e-6 * (np.abs(left.double().numpy()) @ np.abs(right.double().numpy()).T)
    assert (np.abs(chain_product(left, right).numpy() - exact) <= bound).all()


def test_a_row_does_not_depend_on_the_others():
    left, right = operands(37, 50, 700)
    whole = chain_product(left, right)
    for rows in ([0], [36], [3, 4], [5, 0, 9], list(range(36))):
        assert torch.equal(chain_product(left[rows], right), whole[rows])
    assert torch.equal(chain_product(left, right[7:8]), whole[:, 7:8])
    assert chain_product(left, right[7:8]).is_contiguous()


def test_strides_do_not_matter():
    left, right = operands(20, 30, 600)
    want = chain_product(left, right)
    assert torch.equal(chain_product(left.t().contiguous().t(), right.t().contiguous().t()), want)
    wide = torch.zeros(30, 1200)
    wide[:, ::2] = right
    assert torch.equal(chain_product(left, wide[:, ::2]), want)


@pytest.mark.parametrize(("wide", "narrow"), [(24, 40), (40, 24), (1, 5), (5, 1)])
def test_gradients_are_those_of_stock(wide, narrow):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 7, wide, generator=generator, requires_grad=True)
    weight = torch.randn(narrow, wide, generator=generator, requires_grad=True)
    gradient = torch.randn(3, 7, narrow, generator=generator)
    results = []
    for product in (portable, stock):
        out = product(x, weight)
        results.append((out, *torch.autograd.grad(out, (x, weight), gradient)))
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        assert ours.is_contiguous()
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_gradients_go_through_the_portable_product():
    x, weight = operands(1100, 6, 4)
    x, weight = x.requires_grad_(), weight.requires_grad_()
    out = portable(x, weight)
    gradient = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    to_x, to_weight = torch.autograd.grad(out, (x, weight), gradient)
    assert torch.equal(to_x, chain_product(gradient, weight.detach().t()))
    assert torch.equal(to_weight, chain_product(gradient.t(), x.detach().t()))


def test_frozen_operands_keep_nothing():
    x, weight = operands(4, 5, 6)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t.data_ptr()) or t, lambda t: t
    ):
        portable(x.requires_grad_(), weight).sum().backward()
        assert kept == [weight.data_ptr()]
        kept.clear()
        portable(x.detach(), weight.requires_grad_()).sum().backward()
        assert kept == [x.data_ptr()]


@pytest.mark.parametrize("numerics", ["portable-x86", "native-cpu"])
def test_layers_of_one_input(numerics):
    """Together as alone: the same bits forward, the same gradients."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 6, 10, generator=generator, requires_grad=True)
    layers = [Linear(10, width, numerics) for width in (3, 300, 301)]
    gradients = [torch.randn(2, 6, width, generator=generator) for width in (3, 300, 301)]
    parameters = [x, *(layer.weight for layer in layers)]
    results = []
    for outputs in (project(x, *layers), tuple(layer(x) for layer in layers)):
        results.append([*outputs, *torch.autograd.grad(outputs, parameters, gradients)])
    for together, alone in zip(*results, strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
    assert all(torch.equal(*pair) for pair in zip(results[0][:3], results[1][:3], strict=True))
    assert all(torch.equal(*pair) for pair in zip(results[0][4:], results[1][4:], strict=True))
    with torch.no_grad():
        kept = project(x, *layers)
    assert all(torch.equal(*pair) for pair in zip(kept, results[0][:3], strict=True))


def test_numerics_class_decides_the_product():
    assert product_of("portable-x86") is portable
    assert product_of("native-cpu") is product_of("gfx942") is product_of("sm90") is stock
    with pytest.raises(BadUse, match="sm100"):
        Linear(4, 4, "sm100")


def test_other_dtypes_are_refused():
    with pytest.raises(BadUse, match="bfloat16"):
        Linear(4, 4, "portable-x86").to(torch.bfloat16)(torch.zeros(2, 4, dtype=torch.bfloat16))


DIGEST = "2aa616e886a7ef22f46bb3a38a05911a96c12a8a65aa933099d0f7d6a0b62b70"


def test_same_bits_for_threads():
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert product_digest() == DIGEST
    finally:
        torch.set_num_threads(threads)


def test_another_instruction_set_with_the_pins_passes():
    code = (
        "from model_helpers import SMALL, product_digest\n"
        "from instella.network.known_answer import check_machine\n"
        "check_machine(SMALL, 128)\n"
        "print(product_digest())"
    )
    assert run_python(code, ONEDNN_MAX_CPU_ISA="AVX2", **PINS) == DIGEST


def test_without_the_pins_attention_is_refused():
    code = (
        "from instella.errors import VerificationError\n"
        "from instella.network.known_answer import check_attention\n"
        "try:\n"
        "    check_attention()\n"
        "except VerificationError as error:\n"
        "    print(error)"
    )
    refused = run_python(code, OMP_NUM_THREADS="1", ATEN_CPU_CAPABILITY="default")
    assert "MKL_CBWR=COMPATIBLE" in refused
    assert "\n" not in refused


def test_another_order_of_terms_is_noticed(monkeypatch):
    monkeypatch.setattr(
        known_answer, "chain_product", lambda a, b: chain_product(a.flip(1), b.flip(1))
    )
    with pytest.raises(VerificationError, match="product 8 x 9 x 64, element"):
        known_answer.check_product((8, 9, 64))


def test_shapes_cover_forward_and_backward():
    shapes = known_answer.product_shapes(Model(8, 12, 1, 2, 20, 16), 5)
    assert {(5, 20, 8), (5, 8, 20), (8, 20, 5), (5, 12, 8), (5, 8, 12), (8, 12, 5)} <= shapes
