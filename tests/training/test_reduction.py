import math

import numpy as np
import pytest
import torch

from instella.errors import BadUse
from instella.training.reduction import Group, Partial, Tree, ordered_sum, require_power_of_two


def leaf(value: float) -> Partial:
    return Partial([torch.tensor([value])], {"loss": value})


def test_the_tree_is_the_balanced_one() -> None:
    values = np.random.default_rng(0).normal(size=8).astype(np.float32)
    tree = Tree()
    for value in values:
        tree.push(leaf(float(value)))
    a, b, c, d, e, f, g, h = values
    expected = ((a + b) + (c + d)) + ((e + f) + (g + h))
    assert tree.root().gradients[0].item() == expected
    assert tree.root().leaves == 8


def test_a_stack_of_logarithmic_depth() -> None:
    tree, deepest = Tree(), 0
    for value in range(64):
        tree.push(leaf(float(value)))
        deepest = max(deepest, len(tree.stack))
    assert deepest <= 6
    assert tree.root().figures == {"loss": sum(range(64))}


def test_an_incomplete_tree_has_no_root() -> None:
    tree = Tree()
    for value in range(3):
        tree.push(leaf(float(value)))
    with pytest.raises(ValueError, match="3 leaves"):
        tree.root()


def test_micro_batches_must_report_the_same_figures() -> None:
    tree = Tree()
    tree.push(leaf(1.0))
    with pytest.raises(ValueError, match="different figures"):
        tree.push(Partial([torch.zeros(1)], {"other": 1.0}))


@pytest.mark.parametrize("count", [0, 3, 6, 12])
def test_other_counts_are_refused(count: int) -> None:
    with pytest.raises(BadUse, match=f"the number is {count}, which is not a power of two"):
        require_power_of_two(count, "the number")


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_blocks_cover_the_leaves_in_aligned_pieces(ranks: int, count: int) -> None:
    blocks = [Group(rank, ranks).block(count) for rank in range(ranks)]
    assert [index for block in blocks for index in block] == list(range(count))
    sizes = {len(block) for block in blocks}
    assert sizes <= {0, max(1, count // ranks)}


def test_ordered_sum_is_near_the_exact_sum_and_uses_float64() -> None:
    values = torch.from_numpy(np.random.default_rng(0).normal(size=1001).astype(np.float32))
    kept = values.clone()
    assert ordered_sum(values) == pytest.approx(math.fsum(values.tolist()), rel=1e-12)
    assert torch.equal(values, kept)
    assert ordered_sum(torch.zeros(0)) == 0.0
    assert ordered_sum(torch.tensor(2.5)) == 2.5


def test_ordered_sum_is_a_fixed_order() -> None:
    values = [1.0, 1e16, 3.0, -1e16, 5.0]
    # halves: (1 + -1e16), (1e16 + 5), 3; then (first + 3), second; then their sum
    expected = ((1.0 + -1e16) + 3.0) + (1e16 + 5.0)
    assert ordered_sum(torch.tensor(values, dtype=torch.float64)) == expected
