import os
import signal
from pathlib import Path

import pytest
from training_helpers import run_small, small_job, small_training

from instella.errors import BadUse, KitError, VerificationError
from instella.training.processes import launch
from instella.training.reduction import Group


def run_each(group: Group, folder: Path, sizes: list[int]) -> list[str]:
    digests = []
    for size in sizes:
        job = small_job(folder / str(size))
        digests.append(run_small(group, job, small_training(micro_batch=size, max_steps=4)))
    return digests


def fail(group: Group, how: str) -> str:
    if group.rank == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise VerificationError("tokens.npy: altered")
    group.barrier()
    return "not reached"


def test_one_and_four_processes_give_equal_bytes(tmp_path: Path) -> None:
    # two processes: see the stages
    alone = launch(1, run_each, tmp_path / "one", [2, 4])
    assert alone[0] != alone[1]
    # with rows of 4 there are two micro-batches, so two of the four processes hold none
    assert launch(4, run_each, tmp_path / "four", [2, 4]) == alone


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("kit", VerificationError, r"^tokens.npy: altered$"),
        ("kill", KitError, r"^rank 1 ended with status -9 and no message: run the stage again"),
    ],
)
def test_a_rank_that_fails_ends_the_stage_with_its_reason(how, kind, message) -> None:
    with pytest.raises(kind, match=message):
        launch(2, fail, how)


def test_three_ranks_are_refused() -> None:
    with pytest.raises(BadUse, match="the number of ranks is 3"):
        launch(3, fail, "kit")
