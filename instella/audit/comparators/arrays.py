""".npy: which elements differ."""

from pathlib import Path
from typing import Any

import numpy as np

from instella.audit.comparators.finding import Comparison, Finding
from instella.audit.comparators.tensors import blocks, finding
from instella.audit.ulp import compare_elements
from instella.errors import VerificationError

MAX_HEADER_BYTES = 65536
_KINDS = {"f": "F", "i": "I", "u": "U", "b": "U"}


def compare(left: Path, right: Path) -> Comparison:
    """The first differing element, if both hold numbers of one dtype and shape."""
    (dtype, shape, start), other = read_header(left), read_header(right)
    if (dtype, shape) != other[:2]:
        sides = [f"{kind} {list(size)}" for kind, size, _ in ((dtype, shape, start), other)]
        return Comparison("dtype or shape differ", (Finding("header", *sides),))
    count = int(np.prod(shape, dtype=object))
    kind = _KINDS[dtype.kind]
    kind = f"F{8 * dtype.itemsize}" if kind == "F" else kind
    pairs = blocks((left, start), (right, other[2]), count, dtype.itemsize)
    found = compare_elements(pairs, kind)
    if found is None:
        return Comparison("the elements are equal; the headers are not")
    one = finding("", shape, kind, dtype.itemsize, found)
    return Comparison(f"{found.differing} of {found.count} elements differ", (one,))


def read_header(path: Path) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """dtype, shape and offset of the elements of an untrusted file.

    Raises:
        VerificationError: not an array of plain little-endian numbers in C order.
    """
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"version {version}, not 1.0")
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(
                file, max_header_size=MAX_HEADER_BYTES
            )
            start = file.tell()
    except (ValueError, SyntaxError, MemoryError, RecursionError, OverflowError) as error:
        text = " ".join(str(error).split())
        raise VerificationError(f"{path}: not .npy: {text[:200]}") from None
    count = int(np.prod(shape, dtype=object))
    if dtype.hasobject or dtype.kind not in _KINDS or dtype.itemsize > 8 or fortran:
        raise VerificationError(f"{path}: not .npy of plain numbers in C order: {dtype}")
    if min(shape, default=0) < 0 or path.stat().st_size != start + count * dtype.itemsize:
        raise VerificationError(f"{path}: not .npy: {list(shape)} does not fit the file")
    return dtype, shape, start
