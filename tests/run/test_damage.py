"""Bytes of the store are altered, cut or lost: it is noticed, named and mended."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from run_helpers import Run, flip_byte, truncate

from instella.prove.finished import computed, damaged_objects
from instella.prove.processes import instella

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@dataclass(frozen=True)
class Damage:
    """Damage to one file of a finished run.

    Attributes:
        stage, file: which one.
        harm: gets the object in the store and its view in the results.
    """

    stage: str
    file: str
    harm: Callable[[Path, Path], None]


def _lose(stored: Path, view: Path) -> None:
    stored.unlink()
    view.unlink()


CASES = {
    "one byte of a model, time kept": Damage(
        "grpo2", "model.safetensors", lambda stored, view: flip_byte(stored)
    ),
    "one byte of what many stages hold": Damage(
        "tokenizer", "tokenizer.json", lambda stored, view: flip_byte(stored)
    ),
    "records cut": Damage("evaluate_dpo", "answers.jsonl", lambda stored, view: truncate(stored)),
    "object and view lost": Damage("dpo", "steps.jsonl", _lose),
}


@pytest.mark.parametrize("damage", CASES.values(), ids=CASES.keys())
def test_damage_is_named_and_mended(nano_run: Run, nano_copy: Run, damage: Damage) -> None:
    stored = nano_copy.object_path(damage.stage, damage.file)
    damage.harm(stored, nano_copy.results / damage.stage / damage.file)

    audit = instella(nano_copy.folder, "audit")
    assert audit.code == 1, audit.out + audit.err
    assert _named(audit.out, damage), audit.out

    done, outcomes = nano_copy.run()
    assert _named(done.err, damage), done.err
    assert computed(outcomes) == {damage.stage}
    assert nano_copy.root() == nano_run.root()
    assert damaged_objects(nano_copy.store) == []
    audit = instella(nano_copy.folder, "audit")
    assert audit.code == 0, audit.out + audit.err


def _named(text: str, damage: Damage) -> bool:
    """One line of the text names the stage and its file."""
    return any(
        line.startswith(f"{damage.stage}: ") and damage.file in line for line in text.splitlines()
    )


def test_lost_object_comes_back(nano_run: Run, nano_copy: Run) -> None:
    """The view still has the bytes, so computing the stage again is allowed, not needed."""
    stored = nano_copy.object_path("math_sft2", "steps.jsonl")
    stored.unlink()
    done, outcomes = nano_copy.run()
    assert "math_sft2: bytes: steps.jsonl" in done.err
    assert "math_sft2" in outcomes
    assert computed(outcomes) <= {"math_sft2"}
    assert stored.is_file()
    assert damaged_objects(nano_copy.store) == []
    assert nano_copy.root() == nano_run.root()


def test_altered_view_is_named_and_mended(nano_run: Run, nano_copy: Run) -> None:
    view = nano_copy.results / "sft" / "config.json"
    view.unlink()
    view.write_bytes(b"{}\n")
    audit = instella(nano_copy.folder, "audit")
    assert audit.code == 1
    assert "sft: view: config.json" in audit.out
    _, outcomes = nano_copy.run()
    assert computed(outcomes) == set()
    assert nano_copy.root() == nano_run.root()
    assert instella(nano_copy.folder, "audit").code == 0


def test_audit_of_a_sound_run(nano_run: Run) -> None:
    audit = instella(nano_run.folder, "audit")
    assert audit.code == 0, audit.out + audit.err
    assert nano_run.root() in audit.out
