"""Causal attention of portable products: fused attention's values, bits of nothing but its row."""

import pytest
import torch
from torch import Tensor

from instella.network.attention import attend
from instella.network.product import CHUNK
from instella.numerics import PORTABLE

STOCK = "native-cpu"


def operands(batch: int, heads: int, length: int, width: int) -> list[Tensor]:
    """Query, key, value as the network has them: [B, heads, T, d] views of [B, T, heads, d]."""
    generator = torch.Generator().manual_seed(length * width)
    sizes = (batch, length, heads, width)
    return [
        torch.randn(sizes, generator=generator).transpose(1, 2).requires_grad_() for _ in range(3)
    ]


def with_gradients(items: list[Tensor], gradient: Tensor, numerics: str) -> list[Tensor]:
    out = attend(*items, None, numerics)
    return [out, *torch.autograd.grad(out, items, gradient)]


@pytest.mark.parametrize(
    "shape", [(2, 3, 5, 4), (1, 1, 2, 2), (2, 2, 128, 32), (1, 2, CHUNK, 6), (1, 2, 96, 80)]
)
def test_equals_fused_attention(shape):
    items = operands(*shape)
    gradient = torch.randn(items[0].shape, generator=torch.Generator().manual_seed(1))
    ours = with_gradients(items, gradient, PORTABLE)
    theirs = with_gradients(items, gradient, STOCK)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_a_sequence_does_not_depend_on_the_batch():
    items = operands(3, 2, 70, 8)
    gradient = torch.randn(items[0].shape, generator=torch.Generator().manual_seed(2))
    whole = with_gradients(items, gradient, PORTABLE)
    for row in range(3):
        alone = [item.detach()[row : row + 1].requires_grad_() for item in items]
        found = with_gradients(alone, gradient[row : row + 1], PORTABLE)
        for one, all_rows in zip(found, whole, strict=True):
            assert torch.equal(one[0], all_rows[row])


def test_a_query_sees_nothing_after_it():
    items = [item.detach() for item in operands(1, 1, 40, 8)]
    before = attend(*items, None, PORTABLE)
    for item in items:
        item[:, :, 30:] = 7.0
    assert torch.equal(attend(*items, None, PORTABLE)[:, :, :30], before[:, :, :30])


def test_same_bits_for_threads():
    items = operands(2, 2, 200, 16)
    gradient = torch.ones(items[0].shape)
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(with_gradients(items, gradient, PORTABLE))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


@pytest.mark.parametrize("length", [1, CHUNK + 1])
def test_other_lengths_are_fused(length):
    items = operands(1, 2, length, 4)
    assert torch.equal(attend(*items, None, PORTABLE), attend(*items, None, STOCK))


def test_a_mask_is_fused():
    items = operands(2, 2, 6, 4)
    mask = torch.ones(6, 6, dtype=torch.bool).tril().expand(2, 1, 6, 6)
    assert torch.equal(attend(*items, mask, PORTABLE), attend(*items, mask, STOCK))
