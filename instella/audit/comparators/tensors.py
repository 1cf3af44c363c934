"""safetensors: which tensors differ, and in which elements."""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from instella.audit.comparators.finding import Comparison, Finding, shortened
from instella.audit.ulp import EXPONENTS, Elements, Pairs, compare_elements, value_of
from instella.canonical import parse_json
from instella.errors import VerificationError

# The safetensors library's own limit.
MAX_HEADER_BYTES = 100_000_000
MAX_DIMENSIONS = 64
BLOCK = 1 << 20
SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
    "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """Where the elements of one tensor lie: dtype as the format calls it, shape, offset."""

    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return SIZES[self.dtype]

    @property
    def kind(self) -> str:
        """What ``instella.audit.ulp`` calls the format of an element."""
        if self.dtype in EXPONENTS:
            return self.dtype
        return "I" if self.dtype.startswith("I") else "U"


def read_header(path: Path) -> dict[str, Tensor]:
    """Tensors of an untrusted file, by name, in the order of their bytes.

    Raises:
        VerificationError: the header is too large, no JSON, or its tensors overlap, leave
            gaps or do not fit the file.
    """
    total = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else 1 << 63
        if size > min(MAX_HEADER_BYTES, total - 8):
            raise VerificationError(f"{path}: not safetensors: bad length of the header")
        value = parse_json(file.read(size), f"{path}: header")
    if not isinstance(value, dict):
        raise VerificationError(f"{path}: not safetensors: the header is no object")
    value.pop("__metadata__", None)
    spans = [(*_span(path, name, item), name) for name, item in value.items()]
    spans.sort(key=lambda span: (span[0], span[1]))
    place = 0
    tensors = {}
    for begin, end, dtype, shape, name in spans:
        if begin != place or end - begin != SIZES[dtype] * math.prod(shape):
            raise VerificationError(
                f"{path}: not safetensors: {shortened(name)} overlaps, leaves a gap or has "
                "another size than its shape"
            )
        tensors[name] = Tensor(dtype, shape, 8 + size + begin)
        place = end
    if 8 + size + place != total:
        raise VerificationError(f"{path}: not safetensors: bytes beyond the last tensor")
    return tensors


def _span(path: Path, name: str, item: Any) -> tuple[int, int, str, tuple[int, ...]]:
    where = f"{path}: not safetensors: {shortened(name)}"
    if not isinstance(item, dict) or set(item) != {"dtype", "shape", "data_offsets"}:
        raise VerificationError(f"{where}: needs dtype, shape and data_offsets")
    dtype, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if not isinstance(dtype, str) or dtype not in SIZES:
        raise VerificationError(f"{where}: unknown dtype {shortened(str(dtype))}")
    numbers = [shape, offsets]
    for found in numbers:
        if not isinstance(found, list) or not all(
            type(n) is int and 0 <= n < 1 << 63 for n in found
        ):
            raise VerificationError(f"{where}: shape or offsets are no whole numbers")
    if len(offsets) != 2 or len(shape) > MAX_DIMENSIONS:
        raise VerificationError(f"{where}: two offsets are needed, and at most 64 dimensions")
    return offsets[0], offsets[1], dtype, tuple(shape)


def blocks(left: tuple[Path, int], right: tuple[Path, int], count: int, size: int) -> Pairs:
    """Gives the bits of two runs of elements, block by block.

    Args:
        left, right: file and offset of the first element.
        count, size: elements, and bytes of each.
    """

    def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with left[0].open("rb") as one, right[0].open("rb") as other:
            one.seek(left[1])
            other.seek(right[1])
            for start in range(0, count, BLOCK):
                length = min(BLOCK, count - start) * size
                data = [file.read(length) for file in (one, other)]
                yield (np.frombuffer(data[0], f"<u{size}"), np.frombuffer(data[1], f"<u{size}"))

    return pairs


def finding(name: str, shape: tuple[int, ...], kind: str, size: int, found: Elements) -> Finding:
    """The first differing element of an array, and how many others differ."""
    index = np.unravel_index(found.first, shape) if shape else ()
    place = f"{name}[{', '.join(str(int(number)) for number in index)}]"
    left, right = (value_of(bits, kind, size) for bits in found.bits)
    unit = "ULP" if kind in EXPONENTS else "difference"
    extent = f"{found.differing} of {found.count} elements differ"
    if found.largest is not None:
        extent += f", {unit} max {found.largest}, median {found.median}"
    if found.nans:
        extent += f", {found.nans} pairs with NaN"
    return Finding(place, left, right, extent)


def compare(left: Path, right: Path) -> Comparison:
    """Differing tensors, in the order of A's bytes."""
    one, other = read_header(left), read_header(right)
    findings: list[Finding] = []
    for name, tensor in one.items():
        partner = other.get(name)
        label = shortened(name)
        if partner is None:
            findings.append(
                Finding(label, f"{tensor.dtype} {list(tensor.shape)}", "no such tensor")
            )
        elif (tensor.dtype, tensor.shape) != (partner.dtype, partner.shape):
            sides = [f"{item.dtype} {list(item.shape)}" for item in (tensor, partner)]
            findings.append(Finding(label, *sides))
        else:
            pairs = blocks(
                (left, tensor.offset), (right, partner.offset), tensor.count, tensor.size
            )
            found = compare_elements(pairs, tensor.kind)
            if found is not None:
                findings.append(finding(label, tensor.shape, tensor.kind, tensor.size, found))
    for name in other:
        if name not in one:
            item = other[name]
            text = f"{item.dtype} {list(item.shape)}"
            findings.append(Finding(shortened(name), "no such tensor", text))
    total = len({*one, *other})
    if not findings:
        return Comparison("the tensors are equal; the headers are not")
    return Comparison(f"{len(findings)} of {total} tensors differ", tuple(findings))
