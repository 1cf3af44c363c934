"""SIGKILL at a random moment of a training stage: the next run ends with the same root."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from run_helpers import Run, computed, damaged_objects

from benchmarks.harness import descendants, kill_tree, start
from instella.artifacts.identity import identity_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

START_SECONDS = 120.0
# A stage of nano trains for one to a few seconds.
LATEST_SECONDS = 2.5


@pytest.fixture
def moment() -> float:
    seed = random.SystemRandom().randrange(2**32)
    chosen = random.Random(seed).uniform(0.0, LATEST_SECONDS)
    print(f"seed {seed}: killed {chosen:.3f} s after the stage began")
    return chosen


@pytest.mark.parametrize(
    ("stage", "victim"),
    [
        ("pretrain_stage2_seed5796", "both"),
        ("math_sft1", "stage"),
        ("grpo1", "snakemake"),
    ],
)
def test_killed_run_goes_on(
    nano_run: Run, nano_copy: Run, moment: float, stage: str, victim: str
) -> None:
    _forget(nano_copy, stage)
    with (nano_copy.folder / "killed.log").open("wb") as log:
        process = start(["./kit", "run", "--cores", "2"], nano_copy.folder, log, log)
        try:
            work = _wait_for_work(nano_copy, process)
            time.sleep(moment)
            _kill(process, victim, stage)
        finally:
            leftover = descendants(process.pid)
            kill_tree(process)
    assert damaged_objects(nano_copy.store) == []

    _, outcomes = nano_copy.run()
    assert stage in computed(nano_copy.outcomes_since(nano_run.journal()))
    assert computed(outcomes) <= {stage}
    assert nano_copy.root() == nano_run.root()
    assert nano_copy.manifest_bytes() == nano_run.manifest_bytes()
    assert not work.exists()
    assert not any(item.is_running() for item in leftover)


def _forget(run: Run, stage: str) -> None:
    """Make a stage unknown, so that the next run computes it; its bytes stay."""
    key = identity_key(run.manifest(stage).identity)
    (run.store / "actions" / key).unlink()
    (run.results / stage / "manifest.json").unlink()


def _wait_for_work(run: Run, process: subprocess.Popen[bytes]) -> Path:
    """The folder of the stage at work, as soon as it is there."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = list((run.store / "work").glob("*/output"))
        if found:
            return found[0].parent
        assert process.poll() is None, "the run ended before the stage began"
        time.sleep(0.02)
    raise AssertionError(f"no stage began within {START_SECONDS} s")


def _kill(process: subprocess.Popen[bytes], victim: str, stage: str) -> None:
    if victim == "both":
        kill_tree(process)
    elif victim == "snakemake":
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    else:
        for item in descendants(process.pid):
            if stage in " ".join(item.cmdline()) and "instella" in item.cmdline():
                item.kill()
        process.wait(timeout=300)
        assert process.returncode != 0 or psutil.pid_exists(process.pid)
