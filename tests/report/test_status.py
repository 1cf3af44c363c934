"""How far a run is, told while it goes on and without waiting for it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from report_runs import NANO, write_run

from instella.artifacts import journal
from instella.artifacts.store import Store
from instella.cli import main
from instella.report.progress import BROKEN, DONE, RUNNING, WAITING, last_words, used_bytes

KEY = "ab" * 32


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of which sft has begun, and nothing of GRPO 3 is there."""
    results = tmp_path / "results" / "nano"
    write_run(results)
    for name in ("grpo3", "sft"):
        (results / name / "manifest.json").unlink()
    journal.running_file(results, "sft").write_text(f"{KEY}\n", encoding="ascii")
    log = results / "logs" / "sft.log"
    log.parent.mkdir()
    log.write_text(
        "sft: step 1/40  loss 6.1\nsft: step 8/40  loss 5.25  1,234 tokens/s  1 min 2 s left\n"
        "another: step 3/4\nsft: a word\n",
        encoding="utf-8",
    )
    return tmp_path


def status(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """What ``instella status`` prints."""
    places = ["--recipe", str(NANO), "--results", str(folder / "results")]
    code = main(["status", *places, "--store", str(folder / "store"), *more])
    said = capsys.readouterr()
    assert code == 0, said.err
    return said.out


def test_a_running_stage_is_told_with_its_last_words(run: Path, capsys: Any) -> None:
    with Store(run / "store").lock(KEY):
        text = status(run, capsys)
        value = json.loads(status(run, capsys, "--json"))
    assert "44 of 46 stages done" in text
    assert "sft: step 8/40, loss 5.25, 1,234 tokens/s, 1 min 2 s left (told " in text
    assert value["stages"]["sft"] == RUNNING and value["stages"]["grpo3"] == WAITING
    (item,) = value["running"]
    assert item["step"] == 8 and item["total"] == 40 and item["figures"] == {"loss": "5.25"}
    assert item["tokens_per_second"] == 1234 and item["left"] == "1 min 2 s"
    assert value["disk"]["results_bytes"] > 0 and value["disk"]["free_bytes"] > 0


def test_shares_of_a_stage_count_as_running(run: Path, capsys: Any) -> None:
    with Store(run / "store").lock(KEY, shared=True):
        assert json.loads(status(run, capsys, "--json"))["stages"]["sft"] == RUNNING


def test_a_stage_that_was_killed_is_told(run: Path, capsys: Any) -> None:
    assert "sft: broken off" in status(run, capsys)
    with Store(run / "store").lock(KEY):
        pass  # the lock's file stays
    assert json.loads(status(run, capsys, "--json"))["stages"]["sft"] == BROKEN


def test_watching_ends_with_the_run(run: Path, capsys: Any) -> None:
    results = run / "results" / "nano"
    for name in ("grpo3", "sft"):
        (results / name / "manifest.json").write_text("{}", encoding="ascii")
    journal.running_file(results, "sft").unlink()
    (line,) = status(run, capsys, "--watch", "--json").splitlines()
    assert set(json.loads(line)["stages"].values()) == {DONE}


def test_what_is_left_is_estimated_from_what_was_measured(run: Path, capsys: Any) -> None:
    """Both stages took 1.5 s the last time; without that, GRPO 3 is taken from its FLOPs."""
    assert "left: about 3 s one stage after another, an estimate" in status(run, capsys)
    assert json.loads(status(run, capsys, "--json"))["left"] == {"seconds": 3.0, "unknown": 0}
    (run / "results/nano/journal/grpo3.jsonl").unlink()
    left = json.loads(status(run, capsys, "--json"))["left"]
    assert left["unknown"] == 0 and left["seconds"] > 1.5


def test_a_run_that_has_not_begun_is_no_error(tmp_path: Path, capsys: Any) -> None:
    said = status(tmp_path, capsys)
    assert "0 of 46 stages done" in said and "46 stages not counted" in said


def test_a_log_of_anything_is_read_to_a_bound(tmp_path: Path) -> None:
    log = tmp_path / "sft.log"
    log.write_bytes(os.urandom(1 << 18) + b"\nsft: step 2/3  loss nan  <b>\xff  left\n")
    found = last_words(log, "sft")
    assert found["step"] == 2 and found["figures"] == {"loss": "nan"} and found["left"] is None
    assert last_words(tmp_path / "none.log", "sft")["step"] is None


def test_a_file_with_two_names_takes_its_room_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 100_000)
    before = used_bytes(tmp_path)
    os.link(tmp_path / "one", tmp_path / "two")
    assert used_bytes(tmp_path) == before >= 100_000
