"""JSON documents: which values differ, by their paths."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from instella.artifacts.values import NOTHING, differing_values
from instella.audit.comparators.finding import Comparison, Finding, shortened
from instella.audit.ulp import float_distance
from instella.canonical import parse_json
from instella.errors import VerificationError

MAX_BYTES = 256 << 20
SHOWN = 20
ABSENT = "nothing"


def compare(left: Path, right: Path) -> Comparison:
    """Differing values, in the order of their paths."""
    return compare_values(read(left), read(right))


def compare_values(left: Any, right: Any) -> Comparison:
    """As ``compare``, for values."""
    count = 0
    findings: list[Finding] = []
    for found in differing(left, right):
        count += 1
        if len(findings) < SHOWN:
            findings.append(found)
    if not count:
        return Comparison("the values are equal; the text is not")
    return Comparison(f"{count} values differ", tuple(findings))


def read(path: Path) -> Any:
    """An untrusted document.

    Raises:
        VerificationError: too large, or not strict JSON.
    """
    if path.stat().st_size > MAX_BYTES:
        raise VerificationError(f"{path}: larger than {MAX_BYTES} bytes, so not compared")
    return parse_json(path.read_bytes(), str(path))


def differing(left: Any, right: Any, place: str = "$") -> Iterator[Finding]:
    """Every value that differs, with its path behind ``place``."""
    for keys, one, other in differing_values(left, right):
        parts = (f"[{key}]" if isinstance(key, int) else f".{shortened(key)}" for key in keys)
        yield Finding(place + "".join(parts), text(one), text(other), _distance(one, other))


def text(value: Any) -> str:
    """A value on one short line."""
    return ABSENT if value is NOTHING else shortened(repr(value))


def _distance(left: Any, right: Any) -> str:
    if isinstance(left, float) and isinstance(right, float):
        return f"ULP {float_distance(left, right)}"
    return ""
