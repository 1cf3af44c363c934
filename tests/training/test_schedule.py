import json
import math
from pathlib import Path

import pytest

from instella.recipe.settings import Schedule
from instella.training.schedule import learning_rate


def test_olmo_style_equals_the_published_rates(reference: Path) -> None:
    for case in json.loads((reference / "schedules" / "olmo_style.json").read_text()):
        kind = "cosine" if "cosine" in case["what"] else "linear"
        start = 0.1
        if case["warmup_min_lr"] is not None:
            start = case["warmup_min_lr"] / case["initial_lr"]
        settings = Schedule(
            kind=kind,
            warmup_steps=case["warmup_steps"],
            warmup_start=start,
            final_fraction=case["alpha_f"],
        )
        for step, expected in zip(case["steps"], case["lr"], strict=True):
            # the published figures are for the step the trainer asks, one after ours
            rate = learning_rate(settings, case["initial_lr"], step - 1, case["max_steps"])
            assert rate == pytest.approx(expected, rel=1e-12, abs=1e-30), (case["what"], step)


def test_huggingface_style_equals_the_published_rates(reference: Path) -> None:
    for case in json.loads((reference / "schedules" / "hf_linear.json").read_text()):
        settings = Schedule(kind="linear", style="huggingface", warmup_ratio=case["warmup_ratio"])
        for step, expected in zip(case["steps"], case["lr"], strict=True):
            rate = learning_rate(settings, case["initial_lr"], step, case["num_training_steps"])
            assert rate == pytest.approx(expected, rel=1e-12, abs=1e-30), step


def test_first_update_of_the_two_styles() -> None:
    assert learning_rate(Schedule("linear", "huggingface", warmup_steps=4), 1.0, 0, 10) == 0.0
    assert learning_rate(Schedule("linear", "olmo", warmup_steps=4), 1.0, 0, 10) == 0.325


def test_constant_stays_at_the_peak() -> None:
    settings = Schedule("constant", "huggingface")
    assert {learning_rate(settings, 1e-6, step, 5) for step in range(9)} == {1e-6}


@pytest.mark.parametrize("length", [1, 7, 1000])
def test_cosine_is_that_of_the_mathematical_library(length: int) -> None:
    settings = Schedule("cosine", "huggingface")
    for step in range(0, length, max(1, length // 50)):
        expected = (1 + math.cos(math.pi * step / length)) / 2
        assert learning_rate(settings, 1.0, step, length) == pytest.approx(expected, abs=3e-16)
