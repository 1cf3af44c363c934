import io
import itertools
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from training_helpers import (
    Sequences,
    SmallNetwork,
    digest,
    forked,
    run_small,
    small_job,
    small_training,
)

from instella import canonical, step_files
from instella.artifacts.job import Job
from instella.errors import BadUse, VerificationError
from instella.progress import Reporter
from instella.recipe.settings import Optimizer, Schedule
from instella.training import checkpoint
from instella.training.ledger import Ledger
from instella.training.loop import CHECKPOINTS, Diverged, Trainer, resume, save, train
from instella.training.projection import network_logprobs
from instella.training.reduction import Group

STEPS = 12


class Stopped(Exception):
    pass


class StopAt(Reporter):
    """Ends the run after a step, as a kill between two steps would."""

    def __init__(self, step: int) -> None:
        super().__init__("small", stream=io.StringIO())
        self.stop = step

    def step(self, step: int, total: int, tokens: int = 0, **figures: float) -> None:
        if step == self.stop:
            raise Stopped


def run(folder: Path, report: Reporter | None = None, save_every: int = 5) -> str:
    return run_small(Group(), small_job(folder, report), small_training(save_every=save_every))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(tmp_path_factory.mktemp("straight"))


@pytest.mark.parametrize("save_every", [1, 5])
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_stop_at_every_step_and_resume(
    tmp_path: Path, expected: str, step: int, save_every: int
) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, StopAt(step), save_every)
    said = io.StringIO()
    assert run(tmp_path, Reporter("small", stream=said), save_every) == expected
    last_saved = step if step == STEPS else step // save_every * save_every
    assert (f"resumed after step {last_saved}\n" in said.getvalue()) == (last_saved > 0)


def test_stop_again_and_again(tmp_path: Path, expected: str) -> None:
    for step in range(1, STEPS):
        with pytest.raises(Stopped):
            run(tmp_path, StopAt(step), save_every=1)
    assert run(tmp_path, save_every=1) == expected


def test_step_lines_and_progress(tmp_path: Path) -> None:
    stream, seconds = io.StringIO(), itertools.count()
    job = small_job(tmp_path, Reporter("small", stream=stream, clock=lambda: next(seconds)))
    network = SmallNetwork()
    lines = train(job, Group(), network, small_training(), Sequences()).lines
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert [line["epoch"] for line in lines] == [0] * 6 + [1] * 6
    assert {(line["tokens"], line["labels"]) for line in lines} == {(96, 88)}
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert set(lines[0]) == {
        "step", "epoch", "loss", "learning_rate", "grad_norm", "tokens", "labels",
    }  # fmt: skip
    last = stream.getvalue().splitlines()[-1]
    assert last.startswith("small: step 12/12  loss ")
    assert "tokens/s" in last and last.endswith("0 s left")


def _train_in_child(folder: Path) -> None:
    run(folder, save_every=2)


def test_kill_at_random_moments(tmp_path: Path, expected: str) -> None:
    pick = random.Random(5)
    codes = []
    for moment in (0.02, 0.05, 0.1, 0.2):
        process = forked(_train_in_child, tmp_path)
        time.sleep(moment * pick.uniform(0.5, 1.5))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        codes.append(process.exitcode)
    assert -signal.SIGKILL in codes
    assert run(tmp_path, save_every=2) == expected


def _die_while_saving(folder: Path, file: str, part: float) -> None:
    """SIGKILL when ``file`` of the checkpoint of step 6 is partly on the disk."""
    real = {name: getattr(canonical, name) for name in ("write_safetensors", "write_bytes")}

    def dying(name: str):
        def write(path: Path, value: object) -> None:
            real[name](path, value)
            if path.name == file and "00000006" in path.parent.name:
                os.truncate(path, int(path.stat().st_size * part))
                os.kill(os.getpid(), signal.SIGKILL)

        return write

    for name in real:
        setattr(canonical, name, dying(name))
    run(folder, save_every=2)


@pytest.mark.parametrize("file", [*checkpoint.FILES, checkpoint.STATE])
def test_kill_while_a_checkpoint_is_written(tmp_path: Path, expected: str, file: str) -> None:
    process = forked(_die_while_saving, tmp_path, file, 0.5)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    checkpoints = tmp_path / "scratch" / CHECKPOINTS
    names = sorted(path.name for path in checkpoints.iterdir())
    assert names == ["step-00000002", "step-00000004", "unfinished-step-00000006"]
    assert run(tmp_path, save_every=2) == expected
    names = sorted(path.name for path in checkpoints.iterdir())
    assert names == ["step-00000010", "step-00000012"]


@pytest.mark.parametrize("file", [*checkpoint.FILES, checkpoint.STATE])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, expected: str, file: str, damage: str
) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, StopAt(7), save_every=2)
    path = tmp_path / "scratch" / CHECKPOINTS / "step-00000006" / file
    spoil(path, damage)
    said = io.StringIO()
    assert run(tmp_path, Reporter("small", stream=said), save_every=2) == expected
    assert f"checkpoint passed over: {path.parent}" in said.getvalue()
    assert "resumed after step 4\n" in said.getvalue()


def spoil(path: Path, damage: str) -> None:
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
        return
    if damage == "cut":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["step-00000006", "step-00000012", "unfinished-step-00000008"])
def test_what_is_no_folder_is_passed_over(tmp_path: Path, expected: str, name: str) -> None:
    """A file or a link where a checkpoint would stand; what the link leads to stays."""
    for kind in ("file", "link"):
        job = tmp_path / kind
        with pytest.raises(Stopped):
            run(job, StopAt(7), save_every=2)
        folder = job / "scratch" / CHECKPOINTS
        if (folder / name).is_dir():
            (folder / name).rename(folder / "elsewhere")
        (folder / "elsewhere").mkdir(exist_ok=True)
        if kind == "file":
            (folder / name).write_text("x")
        else:
            (folder / name).symlink_to(folder / "elsewhere")
        assert run(job, save_every=2) == expected
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["elsewhere", "step-00000010", "step-00000012"]


def test_a_second_name_of_a_step_is_none(tmp_path: Path, expected: str) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, StopAt(7), save_every=2)
    folder = tmp_path / "scratch" / CHECKPOINTS
    shutil.copytree(folder / "step-00000006", folder / "step-000000006")
    assert run(tmp_path, save_every=2) == expected


def test_all_checkpoints_damaged_starts_anew(tmp_path: Path, expected: str) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, StopAt(7), save_every=2)
    for folder in (tmp_path / "scratch" / CHECKPOINTS).iterdir():
        spoil(folder / checkpoint.MODEL, "flip")
    assert run(tmp_path, save_every=2) == expected


def test_a_checkpoint_cannot_name_another_step(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        run(tmp_path, StopAt(2), save_every=1)
    folder = tmp_path / "scratch" / CHECKPOINTS
    (folder / "step-00000002").rename(folder / "step-00000009")
    with pytest.raises(VerificationError, match="holds step 2"):
        checkpoint.verify(folder / "step-00000009")


def test_lines_and_ledger_come_back(tmp_path: Path) -> None:
    job, training = small_job(tmp_path), small_training()
    made, found = Ledger(1, 12, kept=True), Ledger(1, 12, kept=True)
    first = Trainer(SmallNetwork(), training.optimizer, training.schedule, 12)
    batch = Sequences().batch(torch.arange(8).numpy())
    first.update(batch.micro_batches, Sequences().loss)
    made.add(1, lambda: {"loss": "ab"}, first.tensors)
    save(job, first, [{"step": 1}], made)
    second = Trainer(SmallNetwork(1), training.optimizer, training.schedule, 12)
    assert resume(job, second, found) == [{"step": 1}]
    assert found.lines == made.lines != []
    assert second.step == 1
    for left, right in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(left, right)


def poisoned(job: Job, where: str) -> None:
    class Poisoned(Sequences):
        seen = 0

        def loss(self, network, rows):
            value, figures = super().loss(network, rows)
            self.seen += 1
            if self.seen > 8:
                if where == "loss":
                    figures = {"loss": float("nan")}
                else:
                    value = value * float("inf")
            return value, figures

    train(job, Group(), SmallNetwork(), small_training(save_every=1), Poisoned())


@pytest.mark.parametrize(("where", "name"), [("loss", "loss is nan"), ("gradient", "grad_norm is")])
def test_what_is_not_finite_stops_and_names_the_step(tmp_path: Path, where: str, name: str) -> None:
    with pytest.raises(Diverged, match=f"^step 3: {name}"):
        poisoned(small_job(tmp_path), where)
    kept = checkpoint.latest(tmp_path / "scratch" / CHECKPOINTS, print)
    assert kept is not None and kept.step == 2
    assert all(tensor.isfinite().all() for tensor in kept.model().values())


def test_gradient_of_an_update_is_that_of_the_whole_batch() -> None:
    task, network = Sequences(), SmallNetwork()
    examples = torch.arange(8).numpy()
    trainer = Trainer(network, Optimizer(0.01, max_grad_norm=None), Schedule("constant"), 1)
    found = trainer.update(task.batch(examples).micro_batches, task.loss)
    other = SmallNetwork()
    logprobs = network_logprobs(other, torch.from_numpy(task.rows[examples]))
    (-logprobs.sum() / 96).backward()
    norm = sum((p.grad.double() ** 2).sum().item() for p in other.parameters()) ** 0.5
    assert found.grad_norm == pytest.approx(norm, rel=1e-5)
    assert found.sums["loss"] == pytest.approx(-logprobs.sum().item() / 96, rel=1e-5)
    assert found.learning_rate == 0.01


@pytest.mark.parametrize(("size", "message"), [(3, "no multiple"), (8 // 3, None)])
def test_batch_and_micro_batch_must_fit(tmp_path: Path, size: int, message: str | None) -> None:
    training = small_training(global_batch=12, micro_batch=5 if message else size)
    with pytest.raises(BadUse, match=message or "not a power of two"):
        train(small_job(tmp_path), Group(), SmallNetwork(), training, Sequences(size))


def test_activation_checkpointing_changes_nothing(tmp_path: Path, expected: str) -> None:
    training = small_training(activation_checkpointing=True)
    assert run_small(Group(), small_job(tmp_path), training) == expected


def test_moments_of_an_earlier_stage_continue(tmp_path: Path, expected: str) -> None:
    training = small_training()
    network = SmallNetwork()
    first = train(small_job(tmp_path / "a"), Group(), network, training, Sequences())
    moments = {n: t.clone() for n, t in first.trainer.optimizer.export_state().items()}
    second = train(
        small_job(tmp_path / "b"), Group(), network, training, Sequences(), (moments, tmp_path)
    )
    assert second.trainer.optimizer.step == 24
    assert second.trainer.step == 12
    assert second.lines[0]["learning_rate"] == first.lines[0]["learning_rate"]
    assert digest(network, second) != expected


def test_step_lines_are_canonical_json(tmp_path: Path) -> None:
    run(tmp_path)
    lines = (tmp_path / "scratch" / CHECKPOINTS / "step-00000012" / step_files.STEPS).read_bytes()
    rows = [json.loads(line) for line in lines.splitlines()]
    assert b"".join(map(canonical.json_bytes, rows)) == lines
    assert len(rows) == STEPS
