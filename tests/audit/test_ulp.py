"""Distances in units in the last place, against numpy's own neighbours."""

from collections.abc import Iterator

import numpy as np
import pytest

from instella.audit.ulp import compare_elements, distances, float_distance, value_of


def bits(values: list[float], dtype: str) -> np.ndarray:
    array = np.array(values, dtype)
    return array.view(f"<u{array.dtype.itemsize}")


@pytest.mark.parametrize(("dtype", "kind"), [("<f8", "F64"), ("<f4", "F32"), ("<f2", "F16")])
def test_a_neighbour_is_one_apart(dtype: str, kind: str) -> None:
    values = np.array([0.0, 1.0, -1.0, 1e-4, 100.0, -0.5], dtype)
    for direction in (np.inf, -np.inf):
        near = np.nextafter(values, np.array(direction, dtype))
        found = distances(bits(list(values), dtype), bits(list(near), dtype), kind)
        # from 0 downwards -0 lies between
        assert found.tolist() == [2 if direction < 0 else 1, 1, 1, 1, 1, 1]


def test_signs_bfloat_and_integers() -> None:
    assert distances(bits([1.0], "<f4"), bits([-1.0], "<f4"), "F32")[0] == 2 * 0x3F800000 + 1
    one, next_one = np.array([0x3F80], "<u2"), np.array([0x3F81], "<u2")
    assert distances(one, next_one, "BF16")[0] == 1
    assert value_of(0x3F80, "BF16", 2) == "1.0"
    assert distances(np.array([0xFFFF], "<u2"), np.array([1], "<u2"), "I")[0] == 2
    assert distances(np.array([0xFFFF], "<u2"), np.array([1], "<u2"), "U")[0] == 0xFFFE
    assert float_distance(0.1 + 0.2, 0.3) == 1


def test_counts_largest_and_exact_median_over_blocks() -> None:
    random = np.random.default_rng(1)
    left = random.integers(1, 1 << 62, 4001).astype("<u8")
    right = left.copy()
    odd = random.permutation(4001)[:1501]
    right[odd] += random.integers(1, 1 << 40, 1501).astype("<u8")

    def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, 4001, 97):
            yield left[start : start + 97], right[start : start + 97]

    found = compare_elements(pairs, "U")
    gaps = np.sort((right - left)[odd])
    assert found is not None
    assert (found.count, found.differing, found.first) == (4001, 1501, int(odd.min()))
    assert (found.largest, found.median) == (int(gaps[-1]), int(gaps[750]))
    assert compare_elements(lambda: iter([(left, left)]), "U") is None


def test_a_nan_has_no_distance() -> None:
    left, right = bits([1.0, np.nan], "<f4"), bits([np.nan, 2.0], "<f4")
    found = compare_elements(lambda: iter([(left, right)]), "F32")
    assert found is not None
    assert (found.differing, found.nans, found.largest, found.median) == (2, 2, None, None)
