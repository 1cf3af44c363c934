"""Every kind of training stage: any number of ranks, killed at any point, the same bytes."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stage_toys import (
    STAGES,
    STEPS,
    UPDATES_PER_STEP,
    digests,
    run_all,
    run_toy,
    write_inputs,
)
from training_helpers import forked

from instella import canonical
from instella.rollout import episodes
from instella.step_files import LEDGER
from instella.training.checkpoint import MODEL, STATE
from instella.training.loop import CHECKPOINTS
from instella.training.optimizer import AdamW
from instella.training.processes import launch

Patch = Callable[[], None]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("toys") / "inputs")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, inputs: Path) -> Path:
    """What one uninterrupted process makes."""
    folder = tmp_path_factory.mktemp("alone")
    launch(1, run_all, inputs, folder)
    return folder


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_change_no_byte(tmp_path: Path, inputs: Path, alone: Path, ranks: int) -> None:
    """Two micro-batches an update, so with four ranks two hold none."""
    launch(ranks, run_all, inputs, tmp_path)
    for kind in STAGES:
        assert digests(tmp_path / kind / "output") == digests(alone / kind / "output"), kind


def test_ranks_share_batches_of_one_size_where_the_size_may_change_bits(
    tmp_path: Path, inputs: Path
) -> None:
    """Outside portable-x86 the units of sampling do not know the ranks."""
    units = {ranks: episodes._units(24, 8, ranks, "native-cpu") for ranks in (1, 2, 4)}
    assert units[1] == units[2] == units[4] == [range(0, 8), range(8, 16), range(16, 24)]
    assert episodes._units(3, 100, 2, "native-cpu") == [range(0, 1), range(1, 2), range(2, 3)]
    assert episodes._units(24, 8, 2, "portable-x86") == [range(0, 12), range(12, 24)]
    made = {}
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        launch(ranks, run_all, inputs, folder, "native-cpu", ("policy",))
        made[ranks] = digests(folder / "policy" / "output")
    assert made[1] == made[2]


def kill_in_update(number: int) -> Patch:
    """SIGKILL when the weights of update ``number`` were changed and nothing else was."""

    def patch() -> None:
        real = AdamW.update

        def update(self: AdamW, rate: float) -> None:
            real(self, rate)
            if self.step == number:
                os.kill(os.getpid(), signal.SIGKILL)

        AdamW.update = update  # type: ignore[method-assign]

    return patch


def kill_while_saving(step: int, file: str) -> Patch:
    """SIGKILL when half of ``file`` of a checkpoint is written."""

    def patch() -> None:
        for name in ("write_safetensors", "write_bytes", "write_json"):
            setattr(canonical, name, _cut(getattr(canonical, name), step, file))

    return patch


def _cut(real: Callable[..., None], step: int, file: str) -> Callable[..., None]:
    def write(path: Path, value: Any) -> None:
        real(path, value)
        if path.name == file and f"{step:08d}" in path.parent.name:
            os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    return write


def kill_in_publish(file: str) -> Patch:
    """SIGKILL when half of a file of the output is written; the last checkpoint is whole."""

    def patch() -> None:
        real = canonical.write_bytes

        def write(path: Path, data: bytes) -> None:
            real(path, data[: len(data) // 2] if _is_output(path, file) else data)
            if _is_output(path, file):
                os.kill(os.getpid(), signal.SIGKILL)

        canonical.write_bytes = write

    return patch


def _is_output(path: Path, file: str) -> bool:
    return path.name == file and path.parent.name == "output"


def attempt(kind: str, inputs: Path, folder: Path, patch: Patch) -> multiprocessing.Process:
    """Start the stage in a process of its own, with a way to die."""

    def child() -> None:
        patch()
        run_toy(kind, inputs, folder)

    return forked(child)


@pytest.mark.parametrize("kind", STAGES)
def test_killed_at_every_edge(tmp_path: Path, inputs: Path, alone: Path, kind: str) -> None:
    """One run killed again and again: first step, epoch's edge, checkpoints, last step, end."""
    updates = UPDATES_PER_STEP[kind]
    patches = [
        kill_in_update(1),
        kill_while_saving(2 * updates, MODEL),
        kill_in_update(2 * updates),
        kill_in_update(3 * updates + 1),  # the first of the second epoch
        kill_while_saving(4 * updates, LEDGER),
        kill_in_update(STEPS * updates - updates + 1),
        kill_while_saving(STEPS * updates, STATE),
        kill_in_update(STEPS * updates),
        kill_in_publish(LEDGER),
    ]
    for number, patch in enumerate(patches):
        process = attempt(kind, inputs, tmp_path, patch)
        process.join()
        assert process.exitcode == -signal.SIGKILL, number
        assert_only_whole_checkpoints(tmp_path / "scratch" / CHECKPOINTS)
    output = run_toy(kind, inputs, tmp_path)
    assert digests(output) == digests(alone / kind / "output")


def assert_only_whole_checkpoints(folder: Path) -> None:
    from instella.training import checkpoint

    for path in folder.glob("step-*"):
        assert checkpoint.verify(path).folder == path


@pytest.mark.parametrize("kind", STAGES)
def test_killed_at_random_moments(tmp_path: Path, inputs: Path, alone: Path, kind: str) -> None:
    started = time.monotonic()
    run_toy(kind, inputs, tmp_path / "timed")
    whole = time.monotonic() - started
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}, {whole:.3f} s")
    moments = random.Random(seed)
    killed = 0
    for share in (0.3, 0.5, 0.7, 0.9):
        process = attempt(kind, inputs, tmp_path, lambda: None)
        time.sleep(moments.uniform(0.0, share) * whole)
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        assert_only_whole_checkpoints(tmp_path / "scratch" / CHECKPOINTS)
    assert killed
    output = run_toy(kind, inputs, tmp_path)
    assert digests(output) == digests(alone / kind / "output")
