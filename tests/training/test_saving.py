"""Checkpoints that ranks write together beside the steps: old or new, whenever one is killed."""

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stage_toys import digests, run_toy, write_inputs
from test_sharding import FULL, run_cases

from instella import canonical
from instella.errors import KitError
from instella.recipe.settings import Checkpoints
from instella.training import checkpoint
from instella.training.checkpoint import STATE, part_name
from instella.training.loop import CHECKPOINTS
from instella.training.processes import launch
from instella.training.reduction import Group

FORK = multiprocessing.get_context("fork")
OFTEN = Checkpoints(every=1, keep=3)
CASE = {"run": ("pretrain", FULL)}


def run_dying(group: Group, inputs: Path, folder: Path, rank: int, step: int, file: str) -> None:
    """As ``run_cases``; one rank is killed when half of a file of a checkpoint is written."""
    if group.rank == rank:
        for name in ("write_safetensors", "write_json"):
            setattr(canonical, name, _cut(getattr(canonical, name), step, file))
    run_cases(group, inputs, folder, CASE)


def _cut(real: Callable[..., None], step: int, file: str) -> Callable[..., None]:
    def write(path: Path, value: Any) -> None:
        real(path, value)
        if path.name == file and f"{step:08d}" in path.parent.name:
            os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    return write


def attempt(inputs: Path, folder: Path, rank: int, step: int, file: str) -> int | None:
    """Exit code of rank 0's process."""

    def child() -> None:
        try:
            launch(2, run_dying, inputs, folder, rank, step, file)
        except KitError:
            os._exit(3)

    process = FORK.Process(target=child)
    process.start()
    process.join()
    return process.exitcode


def test_killed_in_the_middle_of_a_checkpoint(tmp_path: Path) -> None:
    """By rank 1's part, by the last file of rank 0, by rank 0's part; then one rank goes on."""
    inputs = write_inputs(tmp_path / "inputs")
    expected = digests(run_toy("pretrain", inputs, tmp_path / "alone"))
    folder = tmp_path / "run" / "scratch" / CHECKPOINTS
    kills = [
        (1, 2, part_name(1, 2), 3, []),
        (0, 4, STATE, -signal.SIGKILL, ["step-00000002"]),
        (0, 6, part_name(0, 2), -signal.SIGKILL, ["step-00000002", "step-00000004"]),
    ]
    for rank, step, file, code, left in kills:
        assert attempt(inputs, tmp_path, rank, step, file) == code
        found = sorted(folder.glob("step-*"))
        assert [path.name for path in found] == left
        assert [checkpoint.verify(path).folder for path in found] == found
        assert list(folder.glob("unfinished-*"))
    assert digests(run_toy("pretrain", inputs, tmp_path / "run")) == expected
    assert not list(folder.glob("unfinished-*"))


def run_pruning(inputs: Path, folder: Path, name: str) -> int | None:
    """Exit code of a run that is killed as it removes the checkpoint of that name."""

    def child() -> None:
        real = shutil.rmtree

        def remove(path: Path, **options: Any) -> None:
            if path.name.endswith(name):
                (path / STATE).unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            real(path, **options)

        shutil.rmtree = remove  # type: ignore[assignment]
        run_toy("pretrain", inputs, folder, checkpoints=OFTEN)

    process = FORK.Process(target=child)
    process.start()
    process.join()
    return process.exitcode


def test_the_place_says_how_many_checkpoints_stay(tmp_path: Path) -> None:
    """Every step, the last three: the bytes are those of every second, also after a kill."""
    inputs = write_inputs(tmp_path / "inputs")
    expected = digests(run_toy("pretrain", inputs, tmp_path / "alone"))
    folder = tmp_path / "run" / "scratch" / CHECKPOINTS
    assert run_pruning(inputs, tmp_path / "run", "step-00000002") == -signal.SIGKILL
    assert [checkpoint.verify(path).step for path in sorted(folder.glob("step-*"))] == [3, 4, 5]
    assert list(folder.glob("unfinished-*"))
    assert digests(run_toy("pretrain", inputs, tmp_path / "run", checkpoints=OFTEN)) == expected
    assert [checkpoint.verify(path).step for path in sorted(folder.iterdir())] == [4, 5, 6]
    once = digests(run_toy("pretrain", inputs, tmp_path / "once", checkpoints=Checkpoints(5, 1)))
    assert once == expected
    left = sorted((tmp_path / "once" / "scratch" / CHECKPOINTS).iterdir())
    assert [checkpoint.verify(path).step for path in left] == [6]


def test_parts_that_do_not_belong_together_are_no_checkpoint(tmp_path: Path) -> None:
    draft = checkpoint.begin(tmp_path, 2)
    assert checkpoint.begin(tmp_path, 2) != draft
    assert not draft.exists()
    draft = checkpoint.begin(tmp_path, 2)
    checkpoint.write_logs(draft, [], [])
    canonical.write_safetensors(draft / part_name(0, 2), {})
    names = (part_name(0, 2), *checkpoint.LOGS)
    path = checkpoint.commit(draft, 2, {n: canonical.sha256_file(draft / n) for n in names})
    said: list[str] = []
    assert checkpoint.latest(tmp_path, said.append) is None
    assert said == [
        f"checkpoint passed over: {path / STATE}: names other files than those of a checkpoint"
    ]
