"""Any other file: the first differing byte, and the line it stands in."""

from pathlib import Path

from instella.audit.comparators.finding import Comparison, Finding, shortened

BLOCK = 1 << 20
AROUND = 24


def compare(left: Path, right: Path) -> Comparison:
    """The first differing byte, from 0, and the text around it."""
    sizes = [path.stat().st_size for path in (left, right)]
    place = line = 0
    with left.open("rb") as one, right.open("rb") as other:
        while True:
            a, b = one.read(BLOCK), other.read(BLOCK)
            if a != b:
                offset = _first(a, b)
                line += a[:offset].count(b"\n") + 1
                begin = max(0, offset - AROUND)
                sides = [shortened(repr(data[begin : offset + AROUND])) for data in (a, b)]
                where = f"byte {place + offset}, line {line}"
                found = Finding(where, sides[0], sides[1])
                return Comparison(f"bytes differ; {sizes[0]} | {sizes[1]} bytes", (found,))
            if not a:
                return Comparison("the bytes are equal")
            place += len(a)
            line += a.count(b"\n")


def _first(left: bytes, right: bytes) -> int:
    size = min(len(left), len(right))
    low, high = 0, size
    if left[:size] == right[:size]:
        return size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if left[low:middle] == right[low:middle] else (low, middle)
    return low
