"""Log-likelihoods: what they are, and that nothing but the row decides them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from evaluation_helpers import ROWS, SHAPE, Constant, Diverged, real_network

from instella.errors import KitError
from instella.evaluation.likelihood import Scored, logprobs

LENGTH = 22
COUNT = 41


def random_rows(full: bool = False) -> list[Scored]:
    generator = np.random.Generator(np.random.PCG64(3))
    rows = []
    for _ in range(COUNT):
        size = LENGTH if full else int(generator.integers(2, LENGTH + 1))
        ids = generator.integers(0, ROWS, size).tolist()
        rows.append(Scored(ids, int(generator.integers(1, size))))
    return rows


def bits(arrays: list[np.ndarray]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


def test_equal_to_log_softmax_at_each_row_alone():
    network, rows = real_network(), random_rows()
    for row, values in zip(rows, logprobs(network, rows, LENGTH, 1), strict=True):
        with torch.no_grad():
            table = torch.log_softmax(network(torch.tensor([row.ids]))[0], -1)
        wanted = [float(table[n - 1, row.ids[n]]) for n in range(row.start, len(row.ids))]
        assert values.dtype == np.float64
        assert values == pytest.approx(wanted, abs=2e-5)


# Widths that fill no vector exactly, so that a batch ends inside one.
ODD = replace(SHAPE, hidden_size=12, intermediate_size=20)


@pytest.mark.parametrize("shape", [SHAPE, ODD], ids=["even", "odd"])
@pytest.mark.parametrize("full", [False, True], ids=["padded", "full"])
def test_bits_do_not_depend_on_batch_order_or_neighbours(shape, full):
    network, rows = real_network(shape), random_rows(full)
    whole = bits(logprobs(network, rows, LENGTH, 1))
    for size in (1, 5, 32):
        parts = [
            values
            for first in range(0, COUNT, size)
            for values in logprobs(network, rows[first : first + size], LENGTH, 1)
        ]
        assert bits(parts) == whole, size
    order = np.random.Generator(np.random.PCG64(4)).permutation(COUNT).tolist()
    mixed = bits(logprobs(network, [rows[n] for n in order], LENGTH, 1))
    assert mixed == [whole[n] for n in order]
    assert len(set(whole)) > COUNT // 2


def test_the_padding_id_does_not_matter():
    network, rows = real_network(), random_rows()
    assert bits(logprobs(network, rows, LENGTH, 1)) == bits(logprobs(network, rows, LENGTH, 200))


def test_only_what_follows_start_is_scored():
    network, ids = real_network(), list(range(10, 20))
    whole, rest = logprobs(network, [Scored(ids, 1), Scored(ids, 6)], LENGTH, 1)
    assert len(whole) == 9
    assert rest.tobytes() == whole[5:].tobytes()


@pytest.mark.parametrize("row", [Scored([1, 2, 3], 0), Scored([5] * (LENGTH + 1), 1)])
def test_a_row_that_does_not_fit_is_refused(row):
    with pytest.raises(ValueError, match="in length 22"):
        logprobs(Constant(), [row], LENGTH, 1)


def test_a_diverged_network_is_told():
    with pytest.raises(KitError, match="has diverged"):
        logprobs(Diverged(), [Scored([1, 2], 1)], LENGTH, 1)
