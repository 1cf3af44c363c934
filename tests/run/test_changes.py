"""A change of settings or code reruns what depends on it, and nothing else."""

from typing import Any

import pytest
from run_helpers import NOTHING_TO_DO, Run

from instella.prove.finished import computed
from instella.prove.processes import kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def _optimizer(recipe: dict[str, Any], stage: str) -> dict[str, Any]:
    optimizer: dict[str, Any] = recipe["stages"][stage]["training"]["optimizer"]
    return optimizer


def test_learning_rate_reruns_its_stage_and_what_follows(nano_run: Run, nano_copy: Run) -> None:
    def faster(recipe: dict[str, Any]) -> None:
        _optimizer(recipe, "grpo2")["learning_rate"] *= 5

    def slower(recipe: dict[str, Any]) -> None:
        _optimizer(recipe, "grpo2")["learning_rate"] /= 5

    nano_copy.edit_recipe(faster)
    _, outcomes = nano_copy.run()
    measured = ("evaluate_grpo2", "evaluate_grpo3")
    expected = {"grpo2", "grpo3", *measured}
    # The table is made again if, and only if, a measurement came out differently.
    if any(
        nano_copy.manifest(stage).content != nano_run.manifest(stage).content for stage in measured
    ):
        expected.add("results")
    assert computed(outcomes) == expected
    assert set(outcomes) == expected | {"results"}
    assert nano_copy.root() != nano_run.root()

    nano_copy.edit_recipe(slower)
    _, outcomes = nano_copy.run()
    assert computed(outcomes) == set()
    assert nano_copy.root() == nano_run.root()


@pytest.mark.parametrize("names", [("learning_rate", "weight_decay"), ("beta1", "beta2")])
def test_swapped_values_are_a_change(nano_copy: Run, names: tuple[str, str]) -> None:
    """Snakemake by itself compares values without their names and would miss this."""

    def swap(recipe: dict[str, Any]) -> None:
        optimizer = _optimizer(recipe, "grpo3")
        optimizer.setdefault("beta1", 0.9)
        left, right = names
        assert optimizer[left] != optimizer[right]
        optimizer[left], optimizer[right] = optimizer[right], optimizer[left]

    nano_copy.edit_recipe(swap)
    _, outcomes = nano_copy.run("results/nano/grpo3/manifest.json")
    assert outcomes == {"grpo3": ["computed"]}


def test_recipe_written_differently_is_no_change(nano_copy: Run) -> None:
    nano_copy.edit_recipe(lambda recipe: recipe["stages"]["sft"]["training"].update(epochs=1))
    done = kit(nano_copy.folder, "-n")
    assert done.code == 0, done.err
    assert NOTHING_TO_DO in done.out + done.err


def test_code_that_makes_the_same_bytes_stops_there(nano_run: Run, nano_copy: Run) -> None:
    module = nano_copy.folder / "instella" / "stages" / "tokens_prompts.py"
    with module.open("a", encoding="utf-8") as file:
        file.write("\nNOT_USED = 1\n")
    _, outcomes = nano_copy.run()
    assert computed(outcomes) == {"tokens_grpo1", "tokens_grpo2", "tokens_grpo3"}
    assert outcomes["grpo1"] == ["hit"]
    assert nano_copy.root() == nano_run.root()
