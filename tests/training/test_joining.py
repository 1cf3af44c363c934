"""Ranks that a launcher started: they meet, work as the children of rank 0 do, and end."""

import os
import re
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist
from training_helpers import run_small, small_job, small_training

from instella import stopping
from instella.errors import BadUse, KitError, Stopped, VerificationError
from instella.training import joining
from instella.training.joining import interface_towards, member
from instella.training.processes import launch
from instella.training.reduction import Group

# Run by torchrun, which makes each process a rank.
SCRIPT = """
import os, sys
sys.path[:0] = {path!r}
from pathlib import Path
from instella import numerics
told = {{name: os.environ[name] for name in os.environ if name.startswith("TORCHELASTIC_")}}
numerics.apply_environment("portable-x86")
os.environ.update(told)
from test_joining import part
from training_helpers import small_job
from instella.training.processes import launch
found = launch({ranks}, part, small_job(Path({folder!r})), {how!r})
print("went on", os.environ["RANK"], found, flush=True)
"""


def part(group: Group, job: object, how: str) -> str:
    """What each rank does: train, fail, or end without a word."""
    if how == "fail" and group.rank == 1:
        raise VerificationError("tokens.npy: altered")
    if how == "die" and group.rank == 1:
        os._exit(9)
    group.barrier()
    if group.rank == 0:
        print("over", os.environ[joining.INTERFACE], flush=True)
    return run_small(group, job, small_training())  # type: ignore[arg-type]


def torchrun(folder: Path, how: str, ranks: int = 2) -> "subprocess.CompletedProcess[str]":
    script = folder / "ranks.py"
    values = {"path": sys.path, "folder": str(folder), "ranks": ranks, "how": how}
    script.write_text(SCRIPT.format(**values), encoding="utf-8")
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [*words, str(script)], capture_output=True, text=True, timeout=240, check=False
    )


def test_ranks_of_torchrun_train_to_the_same_bytes(tmp_path: Path) -> None:
    expected = run_small(Group(), small_job(tmp_path / "alone"), small_training())
    done = torchrun(tmp_path, "train")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["over", "lo", "went", "on", "0", *str(expected).split()]


def test_a_rank_of_torchrun_that_fails_ends_the_others(tmp_path: Path) -> None:
    done = torchrun(tmp_path, "fail")
    assert done.returncode != 0
    assert "VerificationError: tokens.npy: altered" in done.stderr
    assert "went on" not in done.stdout


def test_a_rank_that_is_gone_is_told_of(tmp_path: Path) -> None:
    done = torchrun(tmp_path, "die")
    assert done.returncode != 0
    assert re.search(r"exitcode\s*: 9 ", done.stderr)
    assert "went on" not in done.stdout


def test_another_number_of_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(joining.NAMES, ("0", "4", "localhost", "1"), strict=True):
        monkeypatch.setenv(name, value)
    with pytest.raises(BadUse, match="WORLD_SIZE is 4, and the stage is to run in 2 processes"):
        launch(2, part, "nothing")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("0", "2", "", "1"), "MASTER_ADDR is not set"),
        (("2", "2", "localhost", "1"), "RANK=2 of WORLD_SIZE=2 is no rank"),
        (("x", "2", "localhost", "1"), "RANK=x of WORLD_SIZE=2 is no rank"),
    ],
)
def test_half_a_launcher_is_refused(
    monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], message: str
) -> None:
    for name, value in zip(joining.NAMES, values, strict=True):
        monkeypatch.setenv(name, value)
    with pytest.raises(BadUse, match=message):
        member()


def test_the_interface_is_the_one_that_leads_there() -> None:
    assert interface_towards("127.0.0.1") == "lo"
    with pytest.raises(BadUse, match="no way to"):
        interface_towards("no-such-host.invalid")


def test_the_interface_of_a_run_is_not_left_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(joining.INTERFACE, raising=False)
    with joining.over("lo"), joining.over("east"):
        assert os.environ[joining.INTERFACE] == "east"
    assert joining.INTERFACE not in os.environ


def test_ranks_that_never_meet_end_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As gloo does where a rank died while the group formed: it waits without a limit."""
    monkeypatch.setenv(joining.INTERFACE, "lo")
    monkeypatch.setattr(joining, "SPARE_SECONDS", 0.0)
    monkeypatch.setattr(joining, "_form", lambda *_: threading.Event().wait())
    store = dist.HashStore()
    wanted = r"^the ranks did not reach each other over lo in 1 s: .* run the stage again"
    with (
        pytest.raises(KitError, match=wanted) as caught,
        joining.joined(0, 2, store, timedelta(seconds=0.5)),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_a_run_that_is_stopped_after_each_step_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = small_training(max_steps=4, save_every=100)
    expected = run_small(Group(), small_job(tmp_path / "undisturbed"), training)
    monkeypatch.setenv(stopping.STOP_AT, "0.0")
    job = small_job(tmp_path / "stopped")
    for step in (1, 2, 3):
        wanted = rf": asked to stop, kept a checkpoint after step {step} of 4$"
        with pytest.raises(Stopped, match=wanted):
            run_small(Group(), job, training)
    assert run_small(Group(), job, training) == expected


def test_all_ranks_stop_at_the_same_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = small_training(max_steps=2, save_every=100)
    expected = run_small(Group(), small_job(tmp_path / "undisturbed"), training)
    monkeypatch.setenv(stopping.STOP_AT, "0.0")
    job = small_job(tmp_path / "stopped")
    with pytest.raises(Stopped, match="after step 1 of 2"):
        launch(2, run_small, job, training)
    assert launch(2, run_small, job, training) == expected


SIGNALLED = """
import os, signal, sys
os.environ["INSTELLA_STOP_AT"] = "inf"
from instella import stopping
stopping.listen()
print(stopping.is_wanted(), flush=True)
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
print(stopping.is_wanted(), flush=True)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_signal_asks_for_a_checkpoint(name: str) -> None:
    words = [sys.executable, "-c", SIGNALLED, name]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_without_a_launcher_signals_end_the_process_as_ever() -> None:
    script = SIGNALLED.replace('os.environ["INSTELLA_STOP_AT"] = "inf"', "")
    done = subprocess.run(
        [sys.executable, "-c", script, "SIGTERM"], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -15
