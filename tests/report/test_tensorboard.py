"""TensorBoard's files, read by TensorBoard's own reader, and brought up to date."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from report_runs import NANO, STEPS, training_rows, write_run

from instella.artifacts import journal
from instella.artifacts.notes import FOLDER, SPEED
from instella.artifacts.store import Store
from instella.canonical import json_bytes
from instella.cli import main
from instella.prove.copies import PROJECT
from instella.report.events import crc32c, record, records, scalars_event, step_of
from instella.report.noted import RATE
from instella.report.tensorboard import PREFIX
from instella.training.loop import CHECKPOINTS

KEY = "ab" * 32
# Prints {run: {tag: [[step, value], ...]}} of a folder.
READER = """
import json, sys
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
runs = EventMultiplexer(size_guidance={"scalars": 0}).AddRunsFromDirectory(sys.argv[1]).Reload()
print(json.dumps({run: {tag: [[one.step, one.value] for one in runs.Scalars(run, tag)]
                        for tag in tags["scalars"]} for run, tags in runs.Runs().items()}))
"""


def convert(folder: Path, *more: str) -> None:
    places = ["--recipe", str(NANO), "--results", str(folder / "results")]
    assert main(["tensorboard", *places, "--store", str(folder / "store"), *more]) == 0


def steps_in(folder: Path, stage: str) -> list[int]:
    (file,) = (folder / "results/nano/journal/tensorboard" / stage).glob(f"{PREFIX}*")
    return [step_of(event) for _, event in records(file.read_bytes())]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that is whole but for sft, which is at work."""
    results = tmp_path / "results" / "nano"
    write_run(results)
    (results / "sft" / "manifest.json").unlink()
    (results / "sft" / "steps.jsonl").unlink()
    journal.running_file(results, "sft").write_text(f"{KEY}\n", encoding="ascii")
    log = results / "logs" / "sft.log"
    log.parent.mkdir()
    log.write_text("sft: step 2/5  loss 5.25  1,234 tokens/s  1 min 2 s left\n", encoding="utf-8")
    return tmp_path


def checkpoint(folder: Path, step: int) -> None:
    place = folder / "store/work" / KEY / "scratch" / CHECKPOINTS / f"step-{step:08d}"
    place.mkdir(parents=True)
    rows = training_rows("finetune")[:step]
    (place / "steps.jsonl").write_bytes(b"".join(map(json_bytes, rows)))


def test_tensorboard_reads_every_figure(run: Path) -> None:
    done = subprocess.run(
        [PROJECT / "kit", "setup", "tensorboard"], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    checkpoint(run, 3)
    notes = run / "store/work" / KEY / "scratch" / FOLDER
    notes.mkdir()
    row = {"step": 2, "seconds": 0.5, "tokens": 617, RATE: 1234.0, "ranks": 1}
    (notes / SPEED).write_bytes(json_bytes(row))
    convert(run)
    python = PROJECT / ".venvs/tensorboard/bin/python"
    told = subprocess.run(
        [python, "-c", READER, run / "results/nano/journal/tensorboard"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    read: dict[str, Any] = json.loads(told.stdout)
    assert read["sft"][RATE] == [[2, 1234.0]]
    assert [step for step, _ in read["sft"]["loss"]] == [1, 2, 3]
    for stage, kind in (
        ("pretrain_stage1", "pretrain"),
        ("dpo", "preference"),
        ("grpo3", "policy"),
    ):
        for row in training_rows(kind):
            for figure in set(row) - {"step"}:
                found = dict(read[stage][figure])[row["step"]]
                assert found == pytest.approx(row[figure], rel=1e-6)


def test_a_file_is_only_added_to(run: Path) -> None:
    checkpoint(run, 2)
    convert(run)
    assert steps_in(run, "sft") == [0, 1, 2]
    (file,) = (run / "results/nano/journal/tensorboard/sft").iterdir()
    before = file.read_bytes()
    file.write_bytes(before + b"a record cut by a kill")
    checkpoint(run, 4)
    convert(run)
    convert(run)
    assert steps_in(run, "sft") == [0, 1, 2, 3, 4]
    assert file.read_bytes().startswith(before)
    assert steps_in(run, "dpo") == list(range(STEPS + 1))


def test_another_training_begins_anew(run: Path) -> None:
    checkpoint(run, 2)
    convert(run)
    journal.running_file(run / "results/nano", "sft").write_text("cd" * 32, encoding="ascii")
    convert(run)
    assert steps_in(run, "sft") == [0, 1, 2], "nothing of the new one is there yet"
    place = run / "store/work" / ("cd" * 32)
    (run / "store/work" / KEY).rename(place)
    convert(run)
    (file,) = (run / "results/nano/journal/tensorboard/sft").iterdir()
    assert file.name == f"{PREFIX}{'cd' * 8}"


def test_watching_ends_with_the_run(tmp_path: Path, capsys: Any) -> None:
    write_run(tmp_path / "results" / "nano")
    Store(tmp_path / "store")
    convert(tmp_path, "--watch")
    assert "--logdir" in capsys.readouterr().out


def test_checksums_are_those_of_the_rfc() -> None:
    """RFC 3720, B.4."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


def test_a_damaged_record_ends_the_reading() -> None:
    event = scalars_event(1.5, 300, {"loss": 1e300})
    assert step_of(event) == 300
    whole = record(event)
    for place in range(len(whole)):
        damaged = bytearray(whole * 2)
        damaged[len(whole) + place] ^= 1
        assert [data for _, data in records(bytes(damaged))] == [event]
