"""The first differing step of two ledgers, and ledgers that are none."""

import random
from pathlib import Path
from typing import Any

import pytest

from instella.audit.steps import (
    StepLedger,
    first_difference,
    first_different_leaf,
    read_ledger,
    step_difference,
)
from instella.canonical import json_bytes
from instella.errors import VerificationError

NAMES = {"parameter.a": "1", "exp_avg.a": "2"}


def lines(count: int, **changes: dict[int, Any]) -> list[dict[str, Any]]:
    """A ledger with tensors on each third step; ``changes``: field to step to value."""
    made: list[dict[str, Any]] = []
    for step in range(1, count + 1):
        line: dict[str, Any] = {"step": step}
        for name in ("cursor", "rng", "loss", "rate"):
            line[name] = changes.get(name, {}).get(step, f"{name} {step}")
        if step in (1, count) or step % 3 == 0:
            line["tensors"] = {"names": changes.get("tensors", {}).get(step, NAMES), "root": "r"}
        made.append(line)
    return made


def ledger(path: Path, content: list[dict[str, Any]]) -> StepLedger:
    path.write_bytes(b"".join(map(json_bytes, content)))
    return read_ledger(path)


def test_the_first_leaf_is_found_whatever_differs_behind_it() -> None:
    chance = random.Random(5)
    for _ in range(300):
        count = chance.randint(1, 70)
        left = [bytes([chance.randint(0, 1)]) for _ in range(count)]
        right = [bytes([item[0] ^ (chance.random() < 0.1)]) for item in left]
        right = right[: chance.randint(1, count)] if chance.random() < 0.3 else right
        pairs = enumerate(zip(left, right, strict=False), 1)
        expected = next((n for n, (a, b) in pairs if a != b), None)
        if expected is None and len(left) != len(right):
            expected = len(right) + 1
        assert first_different_leaf(left, right) == expected


def test_a_field_that_differs_once_is_found(tmp_path: Path) -> None:
    """Line 7 alone differs: halving by single lines would miss it."""
    left = ledger(tmp_path / "a", lines(20))
    right = ledger(tmp_path / "b", lines(20, rate={7: "other"}))
    found = step_difference(left, right)
    assert first_difference(left, right) == 7
    assert found is not None and found.fields == ("rate",)
    assert found.equal == ("cursor", "rng", "loss")
    assert (found.digested, found.tensors) == (9, ())


def test_tensors_are_named_at_the_next_digested_step(tmp_path: Path) -> None:
    other = {"parameter.a": "9", "exp_avg.a": "2"}
    changes = {"loss": {4: "x", 5: "y"}, "tensors": {6: other}}
    left, right = ledger(tmp_path / "a", lines(8)), ledger(tmp_path / "b", lines(8, **changes))
    found = step_difference(left, right)
    assert found is not None
    assert (found.step, found.fields, found.digested) == (4, ("loss",), 6)
    assert (found.tensors, found.total) == (("parameter.a",), 2)


def test_equal_and_cut_ledgers(tmp_path: Path) -> None:
    left = ledger(tmp_path / "a", lines(9))
    assert step_difference(left, ledger(tmp_path / "b", lines(9))) is None
    found = step_difference(left, ledger(tmp_path / "c", lines(9)[:6]))
    assert found is not None and (found.step, found.missing) == (7, "B")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}\n",
        b'{"step":2}\n',
        b'{"step":1,"step":1}\n',
        b'{"loss":NaN,"step":1}\n',
        b"[" * 200_000 + b"\n",
        b'{"step":1,"tensors":{"names":[]}}\n',
        b'{"step":1,"tensors":{"names":{"a":1}}}\n',
        b'{"step":1,"unknown":"x","tensors":{"names":{}}}\n',
        json_bytes({"step": 1, "loss": "x"}),
    ],
)
def test_what_is_no_ledger_is_one_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(VerificationError) as caught:
        read_ledger(tmp_path / "a")
    assert str(caught.value).startswith(str(tmp_path)) and "\n" not in str(caught.value)
