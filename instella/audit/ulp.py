"""How far apart floating-point numbers are, in units in the last place.

The distance of two finite numbers of one format is how many representable numbers lie
between them, plus one: reading the bits as sign and magnitude makes all numbers of a format
an ordered row of integers (Dawson, "Comparing Floating Point Numbers", 2012). -0 and 0 are
neighbours here, one apart: their bits differ.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

Pairs = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]

# exponent bits, all set in infinities and NaNs, by name of the format
EXPONENTS = {"F64": 0x7FF << 52, "F32": 0xFF << 23, "F16": 0x1F << 10, "BF16": 0xFF << 7}
_DIGIT = 16


@dataclass(frozen=True)
class Elements:
    """How the elements of two arrays of one shape differ.

    Attributes:
        count, differing: elements, and those whose bits differ.
        first: number, in C order, of the first that differs.
        bits: of that element, left and right, as unsigned integers.
        largest, median: distance among the differing ones; of floats in ULP, of integers
            their difference. None if every differing pair has a NaN.
        nans: differing pairs with a NaN, which have no distance.
    """

    count: int
    differing: int
    first: int
    bits: tuple[int, int]
    largest: int | None
    median: int | None
    nans: int


def distances(left: np.ndarray, right: np.ndarray, kind: str) -> np.ndarray:
    """Distances, uint64, of elements given as bits.

    Args:
        left, right: unsigned integers.
        kind: ``F64``, ``F32``, ``F16`` or ``BF16``; ``I`` for two's complement and
            ``U`` for unsigned numbers, whose distance is their difference.
    """
    one, other = (_ordered(bits, kind) for bits in (left, right))
    return np.where(one > other, one - other, other - one)


def _ordered(bits: np.ndarray, kind: str) -> np.ndarray:
    wide = bits.astype(np.uint64)
    if kind == "U":
        return wide
    sign = np.uint64(1 << (8 * bits.dtype.itemsize - 1))
    if kind == "I":
        return wide ^ sign
    mask = np.uint64((1 << (8 * bits.dtype.itemsize)) - 1)
    return np.where(wide & sign, ~wide & mask, wide | sign)


def _is_nan(bits: np.ndarray, kind: str) -> np.ndarray:
    exponent = EXPONENTS.get(kind)
    if exponent is None:
        return np.zeros(bits.shape, dtype=bool)
    magnitude = bits.astype(np.uint64) & np.uint64((1 << (8 * bits.dtype.itemsize - 1)) - 1)
    return magnitude > np.uint64(exponent)


def compare_elements(pairs: Pairs, kind: str) -> Elements | None:
    """Compare two arrays block by block; None if all bits are equal.

    Args:
        pairs: gives blocks of bits of both arrays, in C order, as often as it is called.
        kind: as for ``distances``.
    """
    count = differing = nans = 0
    first, bits, largest = -1, (0, 0), 0
    for left, right in pairs():
        odd = np.flatnonzero(left != right)
        if odd.size:
            if first < 0:
                first, bits = count + int(odd[0]), (int(left[odd[0]]), int(right[odd[0]]))
            differing += odd.size
            found = _distances_without_nan(left[odd], right[odd], kind)
            nans += odd.size - found.size
            largest = max(largest, int(found.max(initial=0)))
        count += left.size
    if first < 0:
        return None
    measured = differing - nans
    median = _select(pairs, kind, (measured - 1) // 2) if measured else None
    return Elements(count, differing, first, bits, largest if measured else None, median, nans)


def _distances_without_nan(left: np.ndarray, right: np.ndarray, kind: str) -> np.ndarray:
    kept = ~(_is_nan(left, kind) | _is_nan(right, kind))
    return distances(left[kept], right[kept], kind)


def _select(pairs: Pairs, kind: str, rank: int) -> int:
    """The distance of a rank, from 0 and ascending, digit by digit, so memory stays flat."""
    known = 0
    for shift in range(64 - _DIGIT, -1, -_DIGIT):
        counts = np.zeros(1 << _DIGIT, dtype=np.int64)
        for left, right in pairs():
            odd = left != right
            found = _distances_without_nan(left[odd], right[odd], kind)
            if shift + _DIGIT < 64:
                found = found[found >> np.uint64(shift + _DIGIT) == np.uint64(known)]
            digits = (found >> np.uint64(shift)) & np.uint64((1 << _DIGIT) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=1 << _DIGIT)
        totals = np.cumsum(counts)
        digit = int(np.searchsorted(totals, rank, side="right"))
        rank -= int(totals[digit - 1]) if digit else 0
        known = known << _DIGIT | digit
    return known


def value_of(bits: int, kind: str, size: int) -> str:
    """The number that ``size`` bytes of bits stand for, in the fewest digits that tell it."""
    data = bits.to_bytes(size, "little")
    if kind == "BF16":
        return str(np.frombuffer(b"\0\0" + data, "<f4")[0])
    if kind in EXPONENTS:
        return str(np.frombuffer(data, f"<f{size}")[0])
    return str(int.from_bytes(data, "little", signed=kind == "I"))


def float_distance(left: float, right: float) -> int:
    """ULP between two float64."""
    bits = [np.array([value], dtype="<f8").view("<u8") for value in (left, right)]
    return int(distances(bits[0], bits[1], "F64")[0])
