"""Units of one stage made by several processes, each a job of its own: the same bytes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tokens_helpers import digests

from instella.artifacts.store import Store

HERE = Path(__file__).resolve()
WORKER = HERE.with_name("shares_worker.py")
TIMEOUT = 300.0

Start = Callable[..., "subprocess.Popen[str]"]


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(folder), *arguments],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[2]), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: "subprocess.Popen[str]", status: int = 0) -> str:
    """What the process said; it ended with ``status``."""
    _, said = process.communicate(timeout=TIMEOUT)
    assert process.returncode == status, said
    return said


def unit_files(folder: Path) -> list[Path]:
    return sorted((folder / "store" / "work").glob("*/scratch/units/*"))


def made(folder: Path) -> dict[str, str]:
    return digests(folder / "results" / "tokens")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    end(start(folder, "sources"))
    return folder


@pytest.fixture(scope="module")
def expected(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one process makes."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    shutil.copytree(sources, folder)
    said = end(start(folder, "whole"))
    assert "computed" in said
    return made(folder)


@pytest.fixture
def folder(sources: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sources, tmp_path / "run"))


def test_three_jobs_make_what_one_makes(folder: Path, expected: dict[str, str]) -> None:
    jobs = [start(folder, f"{share}/3") for share in (1, 2, 3)]
    said = [end(job) for job in jobs]
    assert all(f"share {share}/3" in text for share, text in enumerate(said, 1))
    assert not (folder / "results" / "tokens" / "manifest.json").exists()
    finished = [path for path in unit_files(folder) if path.suffix == ".json"]
    assert len(finished) > 8
    before = {path: path.stat().st_mtime_ns for path in unit_files(folder)}
    assert len(before) == 3 * len(finished)
    # One unit is found wanting, the others are taken as they are.
    finished[-1].unlink()
    end(start(folder, "1/1"))
    after = {path: path.stat().st_mtime_ns for path in unit_files(folder)}
    changed = {path.stem for path in before if after[path] != before[path]}
    assert after.keys() == before.keys() and changed == {finished[-1].stem}
    assert "computed" in end(start(folder, "whole"))
    assert made(folder) == expected
    assert list((folder / "store" / "work").iterdir()) == []
    # Too late: there is a result.
    assert "has its result already" in end(start(folder, "2/3"))
    assert list((folder / "store" / "work").iterdir()) == []


@pytest.mark.parametrize("death", ["unit", "spool"])
def test_a_killed_job_loses_only_what_it_had_begun(
    folder: Path, expected: dict[str, str], death: str
) -> None:
    end(start(folder, "1/3", death), -signal.SIGKILL)
    half = [path for path in unit_files(folder) if "-" in path.name]
    assert len(half) == (1 if death == "unit" else 0)
    for job in [start(folder, f"{share}/3") for share in (2, 3)]:
        end(job)
    numbers = {path.stem for path in unit_files(folder) if path.suffix == ".json"}
    assert ("000001" in numbers, "000003" in numbers) == (True, False)
    assert ("000000" in numbers) == (death == "unit")
    end(start(folder, "whole"))
    assert made(folder) == expected
    assert list((folder / "store" / "work").iterdir()) == []


def test_the_same_share_twice_and_the_whole_stage_too_early(
    folder: Path, expected: dict[str, str]
) -> None:
    first = [start(folder, "1/2"), start(folder, "1/2")]
    deadline = time.monotonic() + TIMEOUT
    while not unit_files(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    whole, second = start(folder, "whole"), start(folder, "2/2")
    for job in (*first, whole, second):
        end(job)
    assert made(folder) == expected
    assert list((folder / "store" / "work").iterdir()) == []


def test_the_whole_stage_waits_for_a_share(folder: Path, expected: dict[str, str]) -> None:
    end(start(folder, "1/3", "unit"), -signal.SIGKILL)
    (work,) = (folder / "store" / "work").iterdir()
    with Store(folder / "store").lock(work.name, shared=True):
        whole = start(folder, "whole")
        assert whole.stderr is not None
        assert "another process runs this stage" in whole.stderr.readline()
        share = start(folder, "1/3")
        assert "units of" in end(share)
        assert whole.poll() is None and unit_files(folder)
    end(whole)
    assert made(folder) == expected


def test_shares_stop_where_the_stage_has_enough(folder: Path) -> None:
    def few(what: str) -> str:
        return end(start(folder, what, "", "3000"))

    assert "more are not needed" in few("1/1")
    finished = [path for path in unit_files(folder) if path.suffix == ".json"]
    few("whole")
    assert 2 <= len(finished) < 8
    assert "tokens_cut" in (folder / "results" / "tokens" / "report.json").read_text()
