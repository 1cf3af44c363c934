"""``instella recipe`` as a person calls it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from instella.cli import main

ROOT = Path(__file__).resolve().parents[2]
SMALL = "tests/recipe/small.yaml"


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


class Command(Protocol):
    """Runs the command line with these arguments."""

    def __call__(self, *arguments: str) -> Done: ...


@pytest.fixture
def instella(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line, run in the project's folder."""
    monkeypatch.chdir(ROOT)

    def run(*arguments: str) -> Done:
        code = main(arguments)
        return Done(code, *capsys.readouterr())

    return run


def test_show_prints_each_setting_with_its_path(instella: Command) -> None:
    done = instella("recipe", "show", SMALL)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == 'name = "small"'
    assert "stages.pretrain_stage1.training.optimizer.learning_rate = 0.005" in lines
    assert "stages.pretrain_stage1.training.optimizer.beta2 = 0.95" in lines
    assert "stages.pretrain_stage2.seeds[1] = 6198" in lines
    assert 'evaluation.suites.pretrain_stage2[1] = "quiz"' in lines
    assert "sources.rows.revision = null" in lines
    assert len({line.partition(" = ")[0] for line in lines}) == len(lines)


def test_show_as_json_has_the_same_values(instella: Command) -> None:
    done = instella("recipe", "show", "--json", SMALL)
    value = json.loads(done.stdout)
    assert value["stages"]["pretrain_stage2"]["seeds"] == [5796, 6198]
    assert done.stdout.count("\n") == 1


def test_check_says_what_a_recipe_amounts_to(instella: Command) -> None:
    done = instella("recipe", "check", "recipes/instella-3b.yaml")
    assert done.returncode == 0
    assert done.stdout.startswith("recipes/instella-3b.yaml: good: 3,112,675,840 parameters, ")
    assert done.stdout.endswith("pretrain_stage2 57,575,211,008 tokens\n")
    assert done.stdout.count("\n") == 1


def test_check_names_options_that_an_adapter_refuses(instella: Command, tmp_path: Path) -> None:
    text = (ROOT / "recipes/nano.yaml").read_text(encoding="utf-8")
    path = tmp_path / "bad.yaml"
    path.write_text(text.replace("heldout_fraction: 0.25", "heldout_fraction: 1.5"), "utf-8")
    done = instella("recipe", "check", str(path))
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and done.stdout == "" and len(lines) > 5
    assert lines[0].startswith(f"{path}: tokenizer.parts.")
    for line in lines:
        assert "source sums, adapter worked_sums: option heldout_fraction: need" in line, line


def test_check_takes_the_recipe_of_the_placement(instella: Command, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    nano = ROOT / "recipes/nano.yaml"
    config.write_text(f"recipe: {nano}\n", encoding="utf-8")
    done = instella("recipe", "check", "--config", str(config))
    assert done.returncode == 0 and done.stdout.startswith(f"{nano}: good: ")


def test_own_deviations_are_one_a_line(instella: Command) -> None:
    done = instella("recipe", "deviations", "recipes/tiny.yaml")
    assert done.returncode == 0
    assert any(line.startswith("fp32 in a numerics class") for line in done.stdout.splitlines())


def test_show_names_source_confidence_and_legend(instella: Command) -> None:
    done = instella("recipe", "show", "recipes/instella-3b.yaml")
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert (
        "stages.sft.training.optimizer.learning_rate = 1e-05  # published-code; R: "
        "configs/instella-3b-sft.yaml"
    ) in lines
    assert any(
        line.startswith("stages.grpo1.prompts_per_step = 128  # ours; ours, M, VD; unknown for")
        for line in lines
    )
    assert any(line.startswith('beyond.machine.mfu = "unknown"  # unknown;') for line in lines)
    assert any(
        line.startswith("# R: AMD-AIG-AIMA/Instella, ") and "@f00a236" in line for line in lines
    )
    settings = [line for line in lines if not line.startswith("#") and " = null" not in line]
    assert not [line for line in settings if "  # " not in line and " = []" not in line]


def test_show_as_json_has_the_origins(instella: Command) -> None:
    value = json.loads(instella("recipe", "show", "--json", "recipes/instella-3b.yaml").stdout)
    origin = value["origins"]["stages.grpo2.clip_low"]
    assert origin["sources"] == ["VD"] and origin["confidence"] == "default"
    assert value["stages"]["grpo2"]["clip_low"] == 0.2


def test_check_names_each_fault_on_a_line(instella: Command, tmp_path: Path) -> None:
    text = (ROOT / "recipes/instella-3b.yaml").read_text(encoding="utf-8")
    path = tmp_path / "bad.yaml"
    path.write_text(text.replace("max_steps: 13727", "max_steps: 13000"), encoding="utf-8")
    (tmp_path / "published").symlink_to(ROOT / "recipes/published")
    done = instella("recipe", "check", str(path))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines() == [
        f"{path}: stages.pretrain_stage2.training.max_steps: published 13727 (R "
        "scripts/merge_ckpts.py), found 13000",
        f"{path}: derived.stage2_tokens (steps x batch x length of stage 2): expected "
        "57,575,211,008, found 54,525,952,000 by product(stages.pretrain_stage2.training.max_steps, "
        "stages.pretrain_stage2.training.global_batch, stages.pretrain_stage2.data.sequence_length)",
    ]


def test_a_bad_recipe_is_one_line_and_exit_2(instella: Command, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    text = (ROOT / SMALL).read_text(encoding="utf-8")
    path.write_text(text.replace("hidden_size", "hiden_size"), encoding="utf-8")
    done = instella("recipe", "check", str(path))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1
    line = text[: text.index("hidden_size")].count("\n") + 1
    assert f"{path}:{line}: unknown setting 'model.hiden_size'; did you mean" in done.stderr
