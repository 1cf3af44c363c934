"""JSON lines: which rows differ, and in the first of them which fields."""

from functools import partial
from itertools import zip_longest
from pathlib import Path

from instella.audit.comparators.documents import compare_values
from instella.audit.comparators.finding import Comparison, Finding
from instella.canonical import parse_json
from instella.errors import VerificationError

MAX_LINE_BYTES = 64 << 20


def compare(left: Path, right: Path) -> Comparison:
    """The first differing row, from 1, and its differing fields."""
    first, differing, counts = 0, 0, [0, 0]
    pair: tuple[bytes, bytes] = (b"", b"")
    with left.open("rb") as one, right.open("rb") as other:
        lines = (iter(partial(file.readline, MAX_LINE_BYTES + 1), b"") for file in (one, other))
        for number, (a, b) in enumerate(zip_longest(*lines), 1):
            for side, (line, path) in enumerate(((a, left), (b, right))):
                counts[side] += line is not None
                if line is not None and len(line) > MAX_LINE_BYTES:
                    raise VerificationError(
                        f"{path}, line {number}: longer than {MAX_LINE_BYTES} bytes"
                    )
            if a != b:
                differing += 1
                if not first:
                    first, pair = number, (a or b"", b or b"")
    summary = f"{differing} rows differ, the first is row {first}; {counts[0]} | {counts[1]} rows"
    if not pair[0] or not pair[1]:
        sides = ["a row" if line else "no such row" for line in pair]
        return Comparison(summary, (Finding(f"row {first}", *sides),))
    values = [
        parse_json(line, f"{path}, line {first}")
        for line, path in zip(pair, (left, right), strict=True)
    ]
    found = compare_values(*values).findings
    named = [
        Finding(f"row {first}, {item.place.removeprefix('$.')}", item.left, item.right, item.extent)
        for item in found
    ]
    return Comparison(summary, tuple(named))
