"""A rank that dies, at any time, ends the stage soon, with one line, and leaves no process."""

import dataclasses
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from training_helpers import SmallNetwork, forked, run_small, small_job, small_training

from instella.artifacts.job import Job
from instella.errors import BadUse, KitError, VerificationError
from instella.recipe.settings import Training
from instella.training import joining, processes, watching
from instella.training.agreement import check_agreement
from instella.training.ledger import Ledger
from instella.training.loop import Trainer, resume
from instella.training.optimizer import AdamW
from instella.training.processes import launch
from instella.training.reduction import Group

BOUND_SECONDS = 120.0
STEPS = 4
KILLED = r"^rank 1 ended with status -9 and no message: run the stage again"


@pytest.fixture(autouse=True)
def soon_and_clean() -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < BOUND_SECONDS
    assert multiprocessing.active_children() == []


def fail(group: Group, how: str) -> str:
    if how == "kit" and group.rank == 1:
        raise VerificationError("tokens.npy: altered")
    if how == "rank 0" and group.rank == 0:
        raise RuntimeError("out of memory")
    if how == "stop" and group.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    group.barrier()
    return "not reached"


def test_a_rank_that_fails_ends_the_stage_with_its_reason() -> None:
    with pytest.raises(VerificationError, match=r"^tokens.npy: altered$"):
        launch(2, fail, "kit")


def test_what_rank_0_dies_of_is_not_hidden_by_the_others() -> None:
    with pytest.raises(RuntimeError, match=r"^out of memory$"):
        launch(2, fail, "rank 0")


def test_a_stopped_rank_is_waited_for_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "TIMEOUT", timedelta(seconds=1))
    monkeypatch.setattr(watching, "END_SECONDS", 1.0)
    wanted = r"^a rank is gone or does not answer \(.*\): run the stage again"
    with pytest.raises(KitError, match=wanted) as caught:
        launch(2, fail, "stop")
    assert "\n" not in str(caught.value)


def test_a_rank_that_stays_stopped_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "STOPPED_SECONDS", 1.0)
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.1)
    with pytest.raises(KitError, match=KILLED):
        launch(2, fail, "stop")


def test_a_report_is_one_line() -> None:
    child: Any = SimpleNamespace(rank=3)
    error = watching._reported(child, ("ValueError", "two\n  lines"))
    assert type(error) is KitError and str(error) == "rank 3: ValueError: two lines"


def test_three_ranks_are_refused() -> None:
    with pytest.raises(BadUse, match="the number of ranks is 3"):
        launch(3, fail, "kit")


def test_a_rank_killed_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = processes._start

    def start(rank: int, *arguments: Any) -> Any:
        child = real(rank, *arguments)
        if rank == 1:
            child.process.kill()
        return child

    monkeypatch.setattr(processes, "_start", start)
    with pytest.raises(KitError, match=KILLED):
        launch(2, fail, "kit")


def _form_with_a_death(told: Connection) -> None:
    real = processes._wait_until_started

    def wait(children: list[Any]) -> None:
        real(children)
        children[0].process.kill()

    processes._wait_until_started = wait
    processes.FORM_SECONDS = 3.0
    try:
        launch(4, fail, "kit")
    except KitError as error:
        told.send((str(error), len(multiprocessing.active_children())))


def test_a_rank_killed_while_the_group_forms() -> None:
    """In a process of its own, as a stage is: torch counts the groups that it could not form."""
    here, there = multiprocessing.Pipe()
    process = forked(_form_with_a_death, there)
    assert here.poll(BOUND_SECONDS)
    text, left = here.recv()
    process.join()
    assert re.match(KILLED, text) and left == 0


def test_the_limit_of_forming_ends_with_it(tmp_path: Path) -> None:
    """A rank may be late in the formed group for longer than the group may take to form."""
    assert launch(2, late, small_job(tmp_path), 2.0) == "done"


def late(group: Group, job: Job, seconds: float) -> str:
    backend = torch.distributed.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.options._timeout == joining.TIMEOUT
    if group.rank == 1:
        time.sleep(seconds)
    group.barrier()
    return "done"


def killed_in_update(group: Group, job: Job, training: Training, update: int) -> str:
    """Rank 1 dies between an update's gradients and its weights."""
    real = AdamW.update

    def dying(self: AdamW, rate: float) -> None:
        if group.rank == 1 and self.step + 1 == update:
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, rate)

    AdamW.update = dying  # type: ignore[method-assign]
    try:
        return run_small(group, job, training)
    finally:
        AdamW.update = real  # type: ignore[method-assign]


@pytest.mark.parametrize("update", [2, STEPS])
def test_a_rank_killed_in_a_step_and_the_run_after_it(tmp_path: Path, update: int) -> None:
    training = small_training(max_steps=STEPS, save_every=1)
    expected = run_small(Group(), small_job(tmp_path / "expected"), training)
    job = small_job(tmp_path / "killed")
    with pytest.raises(KitError, match=KILLED):
        launch(2, killed_in_update, job, training, update)
    assert run_small(Group(), job, training) == expected


def wait_for_ever(group: Group, ready: Path) -> None:
    if group.rank:
        (ready / str(os.getpid())).touch()
    time.sleep(600)


PARENT = """
from pathlib import Path
import sys
sys.path[:0] = {path!r}
from test_processes import wait_for_ever
from instella.training.processes import launch
if __name__ == "__main__":
    launch(2, wait_for_ever, Path({ready!r}))
"""


def test_the_other_ranks_end_with_rank_0(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.mkdir()
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(path=sys.path, ready=str(ready)))
    parent = subprocess.Popen([sys.executable, str(script)])
    while not (names := list(ready.iterdir())):
        assert parent.poll() is None
        time.sleep(0.05)
    child = psutil.Process(int(names[0].name))
    parent.kill()
    parent.wait()
    assert psutil.wait_procs([child], timeout=10.0)[1] == []


def start_with(group: Group, folder: Path, odd: str) -> str:
    """Rank 1 differs in one thing from what rank 0 starts with."""
    training = small_training()
    job = small_job(folder)
    network = SmallNetwork(seed=int(odd == "weights" and group.rank == 1))
    trainer = Trainer(network, training.optimizer, training.schedule, 4, group)
    if group.rank == 1:
        if odd == "moments":
            trainer.optimizer.export_state()["exp_avg.lm_head.weight"][0, 0] = 1.0
        elif odd == "settings":
            job = dataclasses.replace(job, settings={"seed": 1})
        elif odd == "numerics":
            os.environ["MKL_CBWR"] = "AVX2"
        elif odd == "step":
            trainer.step = 1
    try:
        resume(job, trainer, Ledger(1, 4, kept=False))
    except VerificationError as error:
        return str(error)
    return "agreed"


def start_with_each(group: Group, folder: Path, names: list[str]) -> dict[str, str]:
    return {name: start_with(group, folder / name, name) for name in names}


def test_ranks_that_start_with_something_else_are_named(tmp_path: Path) -> None:
    expected = {
        "nothing": "agreed",
        "weights": "weights and moments",
        "moments": "weights and moments",
        "settings": "settings",
        "step": "step",
        "numerics": "numerics state",  # last: it stays changed
    }
    found = launch(2, start_with_each, tmp_path, list(expected))
    assert found.pop("nothing") == expected.pop("nothing")
    for name, text in found.items():
        assert text.startswith(f"rank 1 starts with other {expected[name]} than rank 0: "), text
        assert "\n" not in text


def test_one_process_agrees_with_itself() -> None:
    check_agreement(Group(), {"step": "00" * 32})


def test_every_rank_asserts_the_numerics_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the other rank's torch reads it at its start; this one has read it
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    with pytest.raises(VerificationError, match=r"portable-x86: ATen kernels: expected AVX2"):
        launch(2, late, small_job(tmp_path), 0.0)
