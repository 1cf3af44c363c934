"""The default recipe as shipped: what it learns, what it publishes, what it prints."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from run_helpers import Run, assert_recorded
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

import instella.model  # noqa: F401  registers the model with transformers
from instella.prove.copies import PROJECT
from instella.prove.processes import Finished
from instella.prove.processes import instella as command
from instella.recipe.graph import checkpoints
from instella.recipe.reader import read_recipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

TinyRun = tuple[Run, Finished]
CHECKPOINTS = checkpoints(read_recipe(PROJECT / "recipes" / "tiny.yaml"))


def test_every_claim_is_met(tiny_run: TinyRun) -> None:
    run, _ = tiny_run
    print((run.results / "table.md").read_text(encoding="utf-8"))
    results = json.loads((run.results / "results" / "results.json").read_bytes())
    claims = results["claims"]
    assert [claim["about"] for claim in claims] == [
        claim.about for claim in read_recipe(run.recipe_file).evaluation.claims
    ]
    assert [claim["about"] for claim in claims if not claim["met"]] == []


def test_the_page_is_small_enough_to_be_sent(tiny_run: TinyRun) -> None:
    run, _ = tiny_run
    size = (run.results / "report.html").stat().st_size
    print(f"report of tiny: {size} bytes")
    assert size < 5_000_000


def test_root_is_printed(tiny_run: TinyRun) -> None:
    run, done = tiny_run
    root = run.root()
    print(f"root of tiny: {root}")
    assert root in done.out.splitlines()
    assert re.fullmatch(r"[0-9a-f]{64}", root)


def test_root_is_the_recorded_one(
    tiny_run: TinyRun, record_property: Callable[[str, object], None]
) -> None:
    run, _ = tiny_run
    assert_recorded(run, record_property)


def test_audit_is_clean(tiny_run: TinyRun) -> None:
    run, _ = tiny_run
    audit = command(run.folder, "audit")
    assert audit.code == 0, audit.out + audit.err


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_checkpoint_loads_in_transformers(tiny_run: TinyRun, checkpoint: str) -> None:
    run, _ = tiny_run
    folder = run.results / checkpoint
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with safe_open(folder / "model.safetensors", "pt") as file:
        names = sorted(file.keys())
        assert names == sorted(name for name, _ in model.named_parameters())
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, file.get_tensor(name)), name
    text = _continuation(model, folder, "Question: what is 2 + 3?")
    print(f"{checkpoint}: {text!r}")
    assert text


def _continuation(model: torch.nn.Module, folder: Path, prompt: str) -> str:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(prompt, return_tensors="pt")
    assert inputs["input_ids"].max() < model.config.vocab_size
    out = model.generate(**inputs, max_new_tokens=8, min_new_tokens=8, do_sample=False)
    assert out.shape[1] == inputs["input_ids"].shape[1] + 8
    return str(tokenizer.decode(out[0, inputs["input_ids"].shape[1] :]))


def test_math_model_boxes_a_sum(tiny_run: TinyRun) -> None:
    """The chat template of the last checkpoint leads to an answer in a box."""
    run, _ = tiny_run
    folder = run.results / "grpo3"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    problem = json.loads((run.results / "heldout" / "sums.jsonl").read_text().splitlines()[0])
    suffix = read_recipe(run.recipe_file).prompt_suffix
    messages = [{"role": "user", "content": f"{problem['question']} {suffix}"}]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = model.generate(**inputs, max_new_tokens=28, do_sample=False)
    answer = tokenizer.decode(out[0, inputs["input_ids"].shape[1] :])
    print(f"{problem['question']!r} -> {answer!r}, right: {problem['answer']}")
    assert re.search(r"\\boxed\{-?\d+\}", answer), answer
