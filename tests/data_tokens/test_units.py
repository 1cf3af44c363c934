"""Unit files, and the workers that make them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import psutil
import pytest

from instella.data.units import Outcome, Units
from instella.data.workers import in_order
from instella.errors import BadUse, KitError, VerificationError

OUTCOMES = [
    Outcome(0, line={"key": "é"}, amounts={"tokens": 2}, columns=(np.array([7, 9], np.uint16),)),
    Outcome(1, held="exam/1"),
    Outcome(1, dropped="empty"),
    Outcome(0, line={"key": "b"}, noted={"cut": 1}, columns=(np.array([1], np.uint16),)),
]


def units(folder: Path) -> Units:
    return Units(folder, {"tokens": "uint16"})


def test_a_unit_comes_back(tmp_path: Path) -> None:
    made = units(tmp_path)
    assert not made.is_done(4)
    made.write(4, OUTCOMES)
    made.write(5, OUTCOMES, enough=2)
    assert made.is_done(4) and made.is_done(5)
    found = list(made.outcomes(4))
    assert [(o.part, o.held, o.dropped, o.line, o.amounts, o.noted) for o in found] == [
        (o.part, o.held, o.dropped, o.line, o.amounts, o.noted) for o in OUTCOMES
    ]
    assert len(list(made.outcomes(5))) == 1
    data = b"".join(made.blocks([4, 5], "tokens", 8))
    assert np.frombuffer(data, np.uint16).tolist() == [7, 9, 1, 7]


def test_a_column_of_another_dtype_is_refused(tmp_path: Path) -> None:
    wrong = Outcome(0, line={}, columns=(np.array([1], np.int64),))
    with pytest.raises(VerificationError, match="int64 added to uint16"):
        units(tmp_path).write(0, [wrong])
    assert not units(tmp_path).is_done(0)


@pytest.mark.parametrize("name", ["records", "tokens", "json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_unit_is_not_done(tmp_path: Path, name: str, harm: str) -> None:
    made = units(tmp_path)
    made.write(0, OUTCOMES)
    path = made.path(0, name)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(data if harm == "flip" else path.read_bytes()[:-2])
    assert not made.is_done(0)
    made.write(0, OUTCOMES)
    assert made.is_done(0)


def touching(folder: Path) -> Callable[[int], None]:
    """Pieces of unequal length that leave a file with the process they ran in."""

    def work(number: int) -> None:
        time.sleep(0.02 * (number % 3))
        (folder / str(number)).write_text(str(os.getpid()))

    return work


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_pieces_are_done_before_they_are_told(tmp_path: Path, workers: int) -> None:
    told = []
    for number in in_order(range(12), workers, touching, tmp_path):
        assert (tmp_path / str(number)).is_file()
        told.append(number)
    assert told == list(range(12))
    makers = {path.read_text() for path in tmp_path.iterdir()}
    assert len(makers) == workers
    assert (str(os.getpid()) in makers) == (workers == 1)


def test_an_early_end_stops_the_workers(tmp_path: Path) -> None:
    pieces = in_order(range(500), 2, touching, tmp_path)
    assert [next(pieces), next(pieces)] == [0, 1]
    pieces.close()  # type: ignore[attr-defined]
    assert len(list(tmp_path.iterdir())) < 20
    assert not active_children()


def test_nothing_to_do_starts_nothing(tmp_path: Path) -> None:
    assert list(in_order([], 3, touching, tmp_path)) == []


def failing(how: str) -> Callable[[int], None]:
    """Work that ends badly at piece 3, or before the first."""
    if how == "prepare":
        raise VerificationError("no tokenizer")

    def work(number: int) -> None:
        if number == 3 and how == "refuse":
            raise BadUse("choose another adapter")
        if number == 3 and how == "break":
            raise RuntimeError("out of luck")
        if number == 3 and how == "die":
            os.kill(os.getpid(), signal.SIGKILL)

    return work


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("prepare", VerificationError, "no tokenizer"),
        ("refuse", BadUse, "choose another adapter"),
        ("break", KitError, "a worker: RuntimeError: out of luck"),
        ("die", KitError, "a worker ended with status -9 .* run the stage again"),
    ],
)
def test_what_a_worker_dies_of_is_told(how: str, kind: type[KitError], message: str) -> None:
    with pytest.raises(kind, match=message):
        list(in_order(range(8), 2, failing, how))
    assert not active_children()


ORPHANS = """
import sys
from pathlib import Path
from instella.data.workers import in_order
from test_units import touching
if __name__ == "__main__":
    for number in in_order(range(10**6), 2, touching, Path(sys.argv[1])):
        pass
"""


def test_no_worker_outlives_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    folder = tmp_path / "pieces"
    folder.mkdir()
    here = Path(__file__).resolve()
    places = f"{here.parents[2]}{os.pathsep}{here.parent}"
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder)], env={**os.environ, "PYTHONPATH": places}
    )
    try:
        deadline = time.monotonic() + 60
        while len(list(folder.iterdir())) < 6 and time.monotonic() < deadline:
            time.sleep(0.05)
        workers = psutil.Process(process.pid).children(recursive=True)
        assert len(workers) >= 2
    finally:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive
