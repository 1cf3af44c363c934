"""A run that starts from an imported checkpoint goes on exactly as the run it came from."""

import shutil
from pathlib import Path

import pytest
from run_helpers import Run, assert_nothing_runs

from instella.prove.copies import clone
from instella.prove.finished import computed
from instella.prove.processes import instella, kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

TOKENIZER = "results/nano/tokenizer/manifest.json"


def take_in(run: Run, model: Path) -> str:
    done = instella(run.folder, "import", str(model), "--as", "sft")
    assert done.code == 0, done.err
    return done.out


@pytest.fixture
def model(nano_run: Run, tmp_path: Path) -> Path:
    """The chat model of the finished run as somebody would publish it."""
    folder = shutil.copytree(nano_run.results / "sft", tmp_path / "published")
    for name in ("manifest.json", "steps.jsonl", "trainer.json"):
        (folder / name).unlink()
    return folder


def test_from_nothing_to_what_follows(nano_run: Run, model: Path, tmp_path: Path) -> None:
    """A fresh store and only later stages: nothing above the import runs."""
    run = Run(clone(tmp_path / "fresh", "recipes/nano.yaml"), "nano")
    refused = instella(run.folder, "import", str(model), "--as", "sft")
    assert refused.code == 3 and f"./kit run {TOKENIZER}" in refused.err
    run.run(TOKENIZER)
    take_in(run, model)
    targets = [f"results/nano/{stage}/manifest.json" for stage in ("dpo", "evaluate_sft")]
    _, outcomes = run.run(*targets)
    assert {"dpo", "evaluate_sft", "tokens_dpo"} <= computed(outcomes)
    assert outcomes["sft"] == ["hit"]
    assert not [stage for stage in outcomes if "pretrain" in stage or stage == "tokens_sft"]
    for stage in ("dpo", "evaluate_sft"):
        assert run.manifest(stage).files == nano_run.manifest(stage).files
    above = kit(run.folder, "results/nano/pretrain_stage1/manifest.json")
    assert above.code != 0 and "pretrain_stage1 is left out" in above.out + above.err


def test_a_whole_run_from_the_import(nano_run: Run, nano_copy: Run, model: Path) -> None:
    shutil.rmtree(nano_copy.results)
    nano_copy.run(TOKENIZER)
    take_in(nano_copy, model)
    _, outcomes = nano_copy.run()
    # What reads the import is made anew and comes out the same; the rest is in the store.
    assert computed(outcomes) == {"dpo", "evaluate_sft", "results"}
    assert not [stage for stage in outcomes if "pretrain" in stage]
    assert set(nano_copy.manifest_bytes()) == set(nano_copy.graph())
    for stage in ("dpo", "evaluate_sft", "grpo3", "evaluate_grpo3"):
        assert nano_copy.manifest(stage).content == nano_run.manifest(stage).content
    assert nano_copy.manifest("sft").content != nano_run.manifest("sft").content
    assert nano_copy.root() != nano_run.root()
    assert_nothing_runs(nano_copy)

    audited = instella(nano_copy.folder, "audit")
    assert audited.code == 0 and "imported: sft" in audited.out, audited.out
    recorded = nano_copy.folder / "recipes" / "nano.root"
    text = recorded.read_bytes()
    recorded.unlink()
    alone = instella(nano_copy.folder, "audit")
    assert alone.code == 0 and "root: compared with nothing, since there is no" in alone.out
    recorded.write_bytes(text)
    why = instella(nano_copy.folder, "why", "sft")
    assert why.out.startswith("sft would not run: the recipe imports it, as content ")
    assert nano_copy.manifest("sft").content[:16] in why.out and "of a folder" in why.out

    # Undone: the stages come back from the store, and so does the root.
    assert instella(nano_copy.folder, "import", "--remove", "sft").code == 0
    _, outcomes = nano_copy.run()
    assert computed(outcomes) == set() and "pretrain_stage1" in outcomes
    assert nano_copy.root() == nano_run.root()
