"""GRPO on a vocabulary whose every token is a whole boxed answer."""

import io
import json
import math
from dataclasses import replace

import pytest
import torch
from stage_toys import ANSWERS, NUMERICS, digests, write_prompts, write_start

from instella.artifacts.job import Job
from instella.artifacts.notes import FOLDER, HEALTH
from instella.errors import BadUse, KitError
from instella.network.folder import load_folder
from instella.progress import Reporter
from instella.recipe.settings import Health, Optimizer, Policy, PromptData, Schedule, Training
from instella.stages import policy


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    write_start(folder, tmp_path_factory.mktemp("tokenizer"))
    return folder


def tokens(folder, answers=ANSWERS):
    folder.mkdir(exist_ok=True)
    write_prompts(folder, answers)
    return folder


def chosen(**changes) -> Policy:
    training = Training(
        global_batch=16,
        micro_batch=8,
        optimizer=Optimizer(learning_rate=0.02, beta2=0.999, weight_decay=0.0),
        schedule=Schedule("linear", final_fraction=0.3),
        seed=11,
        epochs=100,
        max_steps=4,
        save_every=1,
    )
    values = {
        "data": PromptData(max_prompt_tokens=3, parts=()),
        "training": training,
        "init": "start",
        "prompts_per_step": 2,
        "samples_per_prompt": 8,
        "max_response_tokens": 3,
    }
    settings = Policy(
        **{**values, **{k: v for k, v in changes.items() if k in Policy.__annotations__}}
    )
    rest = {k: v for k, v in changes.items() if k not in Policy.__annotations__}
    return replace(settings, training=replace(settings.training, **rest))


def make_job(folder, start, settings, answers=ANSWERS, ranks=1, report=None) -> Job:
    folder.mkdir(exist_ok=True)
    for name in ("output", "scratch"):
        (folder / name).mkdir(exist_ok=True)
    return Job(
        stage="grpo1",
        settings={"policy": settings},
        inputs={"tokens": tokens(folder / "tokens", answers), "init": start},
        output=folder / "output",
        scratch=folder / "scratch",
        downloads=folder,
        recipe_folder=folder,
        numerics=NUMERICS,
        ranks=ranks,
        report=report or Reporter("grpo1", stream=io.StringIO()),
    )


def run(folder, start, settings, **options):
    job = make_job(folder, start, settings, **options)
    policy.run(job)
    return digests(job.output), lines_of(job.output)


def lines_of(folder):
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def test_the_reward_rises_and_every_line_tells_the_step(tmp_path, start):
    found, lines = run(
        tmp_path / "run", start, chosen(max_steps=24, prompts_per_step=4, global_batch=16)
    )
    assert {"model.safetensors", "config.json", "tokenizer.json", "trainer.json"} <= found.keys()
    assert [line["step"] for line in lines] == list(range(1, 25))
    assert lines[-1]["epoch"] == 23 and lines[0]["updates"] == 2
    first, last = ([line["reward"] for line in part] for part in (lines[:4], lines[-4:]))
    assert sum(last) / 4 > sum(first) / 4 + 0.3
    assert 0.02 > lines[0]["learning_rate"] > lines[-1]["learning_rate"] == 0.3 * 0.02
    for line in lines:
        assert 1 <= line["response_tokens"] <= 3
        assert 0 <= line["unfinished"] <= 1 and 0 <= line["no_signal"] <= 1
        assert line["tokens"] == line["labels"] + 32 * 2
    network = load_folder(tmp_path / "run" / "output", NUMERICS)
    assert not torch.equal(network.lm_head.weight, load_folder(start, NUMERICS).lm_head.weight)


def test_the_first_update_has_ratio_one_and_the_first_step_no_divergence(tmp_path, start):
    _, lines = run(tmp_path / "run", start, chosen(prompts_per_step=4, global_batch=32))
    assert [line["updates"] for line in lines] == [1] * 4
    for line in lines:
        assert (line["approximate_kl"], line["clip_fraction"]) == (0.0, 0.0)
    assert lines[0]["kl_loss"] == 0.0 < lines[-1]["kl_loss"]


class Killed(Exception):
    pass


class Killer(Reporter):
    """Stops the run when a step is told, after its checkpoint was written."""

    def __init__(self, last: int) -> None:
        super().__init__("grpo1", stream=io.StringIO())
        self._last = last

    def step(self, step, total, tokens=0, **figures):
        if step == self._last:
            raise Killed


def test_a_run_stopped_at_any_step_gives_the_same_bytes(tmp_path, start):
    settings = chosen(save_every=2, prompts_per_step=2, global_batch=8)
    whole, lines = run(tmp_path / "whole", start, settings)
    assert lines[-1]["epoch"] == 1 and lines[0]["updates"] == 2
    for last in (1, 2, 3):
        folder = tmp_path / f"stopped{last}"
        with pytest.raises(Killed):
            policy.run(make_job(folder, start, settings, report=Killer(last)))
        found, _ = run(folder, start, settings)
        assert found == whole
        assert log_of(folder) == log_of(tmp_path / "whole")


def test_groups_without_signal_are_told_and_move_nothing(tmp_path, start):
    settings = chosen(max_steps=2, kl_coefficient=0.0)
    _, lines = run(tmp_path / "run", start, settings, answers=("9",) * 4)
    assert [(line["reward"], line["no_signal"], line["loss"]) for line in lines] == [(0, 1, 0)] * 2
    before, after = (load_folder(path, NUMERICS) for path in (start, tmp_path / "run" / "output"))
    for name, tensor in before.state_dict().items():
        assert torch.equal(tensor, after.state_dict()[name])


def test_a_stage_without_signal_gives_up_and_leaves_its_figures(tmp_path, start):
    settings = chosen(kl_coefficient=0.0, health=Health(silent_steps=2))
    with pytest.raises(KitError, match=r"grpo1: step 2: for 2 steps all answers of every group"):
        run(tmp_path / "run", start, settings, answers=("9",) * 4)
    rows = [json.loads(row) for row in log_of(tmp_path / "run").splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert 0 < row["entropy"] <= math.log(64) and row["timed_out"] == row["reward_spread"] == 0
        assert 0 <= row["rollout_difference"] <= row["rollout_difference_max"] < 1e-5


def log_of(folder):
    return (folder / "scratch" / FOLDER / HEALTH).read_bytes()


def test_a_step_of_no_whole_mini_batches_is_refused():
    with pytest.raises(BadUse, match="multiple of global_batch 12"):
        policy.updates_per_step(chosen(global_batch=12, micro_batch=4))
    with pytest.raises(BadUse, match="micro_batch 3"):
        policy.updates_per_step(chosen(micro_batch=3))
    assert policy.updates_per_step(chosen(global_batch=8)) == 2


def test_a_diverged_network_stops_the_stage_with_one_line(tmp_path, start):
    settings = chosen(max_steps=3, optimizer=Optimizer(learning_rate=1e38, max_grad_norm=None))
    with pytest.raises(KitError, match=r"finite|is nan|is inf") as caught:
        run(tmp_path / "run", start, settings)
    assert "\n" not in str(caught.value)
