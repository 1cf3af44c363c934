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


def test_check_takes_the_recipe_of_the_placement(instella: Command, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"recipe: {SMALL}\n", encoding="utf-8")
    done = instella("recipe", "check", "--config", str(config))
    assert done.returncode == 0 and done.stdout.startswith(f"{SMALL}: good: ")


def test_deviations_are_one_a_line(instella: Command) -> None:
    done = instella("recipe", "deviations", "recipes/instella-3b.yaml")
    assert done.returncode == 0
    assert any(line.startswith("DPO batch: 128") for line in done.stdout.splitlines())


def test_a_bad_recipe_is_one_line_and_exit_2(instella: Command, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    text = (ROOT / SMALL).read_text(encoding="utf-8")
    path.write_text(text.replace("hidden_size", "hiden_size"), encoding="utf-8")
    done = instella("recipe", "check", str(path))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1
    line = text[: text.index("hidden_size")].count("\n") + 1
    assert f"{path}:{line}: unknown setting 'model.hiden_size'; did you mean" in done.stderr
