"""SIGKILL at a random moment of a training stage: the next run ends with the same root."""

import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from run_helpers import Run, computed, damaged_objects

from benchmarks.harness import descendants, kill_tree, start
from instella.artifacts.identity import identity_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

START_SECONDS = 120.0


@pytest.mark.parametrize(
    ("stage", "victim"),
    [
        ("pretrain_stage2_seed5796", "both"),
        ("math_sft1", "stage"),
        ("grpo1", "snakemake"),
    ],
)
def test_killed_run_goes_on(nano_run: Run, nano_copy: Run, stage: str, victim: str) -> None:
    _forget(nano_copy, stage)
    with _started(nano_copy) as process:
        work = _wait_for_work(nano_copy, process)
        time.sleep(_moment(nano_run, stage))
        _kill(process, victim, stage)
        print(f"killed {victim} of {stage}; at work then: {work.exists()}")
        assert damaged_objects(nano_copy.store) == []

        _, outcomes = nano_copy.run()
    assert computed(outcomes) <= {stage}
    assert computed(nano_copy.outcomes_since(nano_run.journal())) == {stage}
    assert nano_copy.root() == nano_run.root()
    assert nano_copy.manifest_bytes() == nano_run.manifest_bytes()
    assert damaged_objects(nano_copy.store) == []
    assert not work.exists()


def _forget(run: Run, stage: str) -> None:
    """Make a stage unknown, so that the next run computes it; its bytes stay."""
    key = identity_key(run.manifest(stage).identity)
    (run.store / "actions" / key).unlink()
    (run.results / stage / "manifest.json").unlink()


@contextmanager
def _started(run: Run) -> Iterator[subprocess.Popen[bytes]]:
    """``./kit run`` at work; what is left of it at the end is killed."""
    with (run.folder / "killed.log").open("wb") as log:
        process = start(["./kit", "run", "--cores", "2"], run.folder, log, log)
        try:
            yield process
        finally:
            kill_tree(process)


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


def _moment(run: Run, stage: str) -> float:
    """Seconds after a stage's begin at which to kill it, at random while it lasts."""
    seed = random.SystemRandom().randrange(2**32)
    seconds: float = run.journal()[stage][-1]["seconds"]
    chosen = random.Random(seed).uniform(0.0, seconds)
    print(f"seed {seed}: {chosen:.3f} s of the {seconds} s that {stage} took")
    return chosen


def _kill(process: subprocess.Popen[bytes], victim: str, stage: str) -> None:
    if victim == "both":
        kill_tree(process)
    elif victim == "snakemake":
        process.kill()
        process.wait()
    else:
        for item in descendants(process.pid):
            with suppress(psutil.NoSuchProcess):
                if {"instella", stage} <= set(item.cmdline()):
                    item.kill()
        process.wait(timeout=300)
