"""verl's own trainer on the rendered configuration: the same weights again, also after a stop.

With ``INSTELLA_SOAK=1`` only: every run starts Ray and takes a minute or more.
"""

import shutil
from pathlib import Path

import pytest
from conftest import QUESTIONS, SOAK, SUFFIX

from instella.data.tokenizer import Encoder
from instella.engines.verl.configuration import TRAIN, VALIDATION
from instella.engines.verl.exported import export, shapes_of
from instella.engines.verl.options import Options
from instella.engines.verl.prompts import (
    order_of,
    read_questions,
    template_of,
    write_training,
    write_validation,
)
from instella.engines.verl.rehearsal import (
    CHECKPOINTS,
    PREFIX,
    Rehearsal,
    overlay,
    shortened,
)
from instella.errors import KitError
from instella.recipe.settings import Recipe

FAULTS = Path(__file__).with_name("faults")
REWARD = "reward.custom_reward_function.path"
# Three steps make an epoch of the small stage, so step 4 begins another.
STEPS, EDGE = 4, 3
# Bounds of a busy machine; a run takes one to ten minutes.
SECONDS = 1800
pytestmark = pytest.mark.timeout(2 * SECONDS)
soak = pytest.mark.skipif(not SOAK, reason="starts Ray; INSTELLA_SOAK=1 runs it (docs/engines.md)")


class Stage:
    """The small stage, rehearsed in folders of its own."""

    def __init__(self, recipe: Recipe, start: Path, tokens: Path, encoder: Encoder, python: Path):
        self.recipe, self.start, self.python = shortened(recipe, "grpo1", STEPS), start, python
        self.questions = read_questions(tokens, encoder, template_of(start))

    def rehearsal(self, folder: Path, reward: str = "parity_reward", **more) -> Rehearsal:
        if not folder.is_dir():
            folder.mkdir()
            order = order_of(self.recipe.stages.grpo1, len(self.questions))
            write_training(folder / TRAIN, self.questions, order)
            held = [{"key": "h", "question": QUESTIONS[0], "answer": "0"}]
            write_validation(folder / VALIDATION, {"set": held}, SUFFIX)
        changes = {REWARD: str(FAULTS / f"{reward}.py")}
        return Rehearsal(self.recipe, "grpo1", folder, self.start, self.python, changes, **more)


@pytest.fixture(scope="module")
def stage(small: Recipe, start: Path, tokens: Path, encoder: Encoder, verl_python: Path) -> Stage:
    return Stage(small, start, tokens, encoder, verl_python)


@pytest.fixture(scope="module")
def whole(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """All steps in one go."""
    made = stage.rehearsal(tmp_path_factory.mktemp("whole") / "run")
    made.run(SECONDS)
    return made


def weights(made: Rehearsal) -> list[dict[str, str]]:
    return [made.weights(step) for step in range(1, STEPS + 1)]


def test_the_overlay_names_what_production_names() -> None:
    """Every key of it is one of verl's or added on purpose; the rest stays as rendered."""
    changed = {name for name in overlay("/ray") if not name.startswith("++")}
    assert {name.lstrip("+").split(".")[0] for name in changed} == {
        "trainer", "actor_rollout_ref", "reward", "transfer_queue", "ray_kwargs",
    }  # fmt: skip
    assert not any("custom_reward_function" in name or "sampler" in name for name in changed)
    assert Options(attention="sdpa").engine_arguments() == Options().engine_arguments()


# Stands for verl's Python: takes the place of each start, and does what its line of words says.
STAND_IN = """#!/bin/sh
echo start >> starts
case $(wc -l < starts) in {late}) echo '{words}' >&2; exit 1;; esac
exit {status}
"""


@pytest.mark.parametrize(
    ("late", "words", "status", "starts", "told"),
    [
        ("1|2", "Exception: The current node timed out during startup. This", 0, 3, None),
        ("*", "Exception: The current node timed out during startup. This", 0, 5, "timed out"),
        ("1", "ValueError: no", 0, 1, "ended with status 1: ValueError: no"),
        ("0", "", 3, 1, "ended with status 3"),
    ],
)
def test_only_a_late_start_of_ray_is_repeated(
    small: Recipe, tmp_path: Path, late: str, words: str, status: int, starts: int, told: str | None
) -> None:
    python = tmp_path / "python"
    python.write_text(STAND_IN.format(late=late, words=words, status=status))
    python.chmod(0o755)
    made = Rehearsal(small, "grpo1", tmp_path, tmp_path, python)
    if told is None:
        made.run()
    else:
        with pytest.raises(KitError, match=told):
            made.run()
    assert (tmp_path / "starts").read_text().count("start") == starts


@soak
def test_rollout_and_actor_agree_and_the_weights_move(whole: Rehearsal) -> None:
    whole.check(STEPS)
    for row in whole.figures():
        assert row["data"][f"{PREFIX}_max"] < 1e-6
    assert len({digest["model.safetensors"] for digest in weights(whole)}) == STEPS


@soak
def test_a_second_run_gives_the_same_weights(
    stage: Stage, whole: Rehearsal, tmp_path: Path
) -> None:
    again = stage.rehearsal(tmp_path / "again")
    again.run(SECONDS)
    assert weights(again) == weights(whole)


@soak
@pytest.mark.parametrize("last", [2, EDGE])
def test_a_stopped_run_goes_on_to_the_same_weights(
    stage: Stage, whole: Rehearsal, tmp_path: Path, last: int
) -> None:
    """Within an epoch of the kit's order, and at the edge of one; from what a kill leaves."""
    resumed = stage.rehearsal(tmp_path / "run")
    left = resumed.folder / CHECKPOINTS
    left.mkdir()
    for step in range(1, last + 1):
        name = f"global_step_{step}"
        shutil.copytree(whole.folder / CHECKPOINTS / name, left / name)
    (left / "latest_checkpointed_iteration.txt").write_text(str(last))
    resumed.run(SECONDS)
    assert [row["step"] for row in resumed.figures()] == list(range(last + 1, STEPS + 1))
    assert weights(resumed)[last:] == weights(whole)[last:]


@soak
def test_its_checkpoint_is_exported(stage: Stage, whole: Rehearsal, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    checkpoint = whole.folder / CHECKPOINTS / f"global_step_{STEPS}"
    export(checkpoint, stage.start, made, stage.python)
    assert shapes_of(made) == shapes_of(stage.start)


@soak
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("dying_server", "died"),
        ("lossy_sync", "Missing key"),
        ("broken_reward", "a step has 8 of 12 responses"),
    ],
)
def test_a_fault_ends_the_run_within_a_bound(
    stage: Stage, tmp_path: Path, fault: str, words: str
) -> None:
    if fault.endswith("reward"):
        made = stage.rehearsal(tmp_path / "run", reward=fault)
    else:
        made = stage.rehearsal(tmp_path / "run", modules=(fault,), paths=(FAULTS,))
    with pytest.raises(KitError, match="verl ended with status"):
        made.run(SECONDS)
    assert words in (made.folder / "verl.log").read_text(errors="replace")
