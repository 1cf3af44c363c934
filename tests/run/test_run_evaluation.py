"""What the commands of evaluation tell of a whole run, overlap with its training data above all."""

import argparse
import json
from pathlib import Path

import pytest
from run_helpers import Run

from instella.canonical import read_jsonl, write_jsonl
from instella.commands import evaluation_overlap, seen
from instella.commands.common import load_project
from instella.data.adapters import texts
from instella.data.documents import Document
from instella.data.packing import documents_of, split_options
from instella.evaluation.near import runs
from instella.evaluation.overlap import NEAR_SHARE, NEAR_WORDS, HeldOut
from instella.prove.processes import instella

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

STAGES = ("tokens_pretrain_stage1", "tokens_pretrain_stage2", "tokens_sft")


def kept(run: Run, name: str) -> list[Document]:
    """The documents that a tokens stage kept."""
    stage = run.graph()[name]
    inputs = {role: run.results / other for role, other in stage.inputs.items()}
    rows = read_jsonl(run.results / name / "documents.jsonl")
    ledger = {(row["source"], row["key"]) for row in rows}
    return [
        document
        for part in stage.settings["data"].parts
        for document in documents_of(split_options(part)[0], inputs)
        if (part.source, document.key) in ledger
    ]


def test_counts_are_those_of_sets_of_words(nano_run: Run, tmp_path: Path) -> None:
    done = instella(nano_run.folder, "evaluation", "overlap", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    documents = [
        set(runs(" ".join(texts(document)), NEAR_WORDS))
        for name in STAGES
        for document in kept(nano_run, name)
    ]
    for path in sorted((nano_run.results / "heldout").glob("*.jsonl")):
        items = [
            set(runs(row.get("text", row.get("question")), NEAR_WORDS)) for row in read_jsonl(path)
        ]
        near = sum(
            any(len(item & held) >= NEAR_SHARE * len(item) for held in documents)
            for item in items
            if item
        )
        short = items.count(set())
        wanted = {"items": len(items), "exact": 0, "near": near, "short": short}
        assert told["sft"][path.stem] == wanted
    overlap = tmp_path / "overlap.json"
    overlap.write_text(done.out)
    options = ["--published", "recipes/published", "--overlap", str(overlap)]
    table = instella(nano_run.folder, "evaluation", "reconcile", *options)
    assert table.code == 0 and "0 exact, 0 near of 12" in table.out


@pytest.mark.parametrize("name", STAGES)
def test_what_was_trained_on_is_found(nano_run: Run, tmp_path: Path, name: str) -> None:
    """Every third document of a stage stands for a held-out item."""
    some = [" ".join(texts(document)) for document in kept(nano_run, name)][::3]
    long = {f"some/{n}" for n, text in enumerate(some) if any(runs(text, NEAR_WORDS))}
    rows = [{"key": str(number), "text": text} for number, text in enumerate(some)]
    write_jsonl(tmp_path / "some.jsonl", rows)
    args = argparse.Namespace(
        config=nano_run.folder / "config.yaml", recipe_file=str(nano_run.recipe_file),
        results=str(nano_run.results.parent), store=str(nano_run.folder / "store"),
    )  # fmt: skip
    run = seen.Run(load_project(args))
    found = HeldOut(tmp_path, 13).found_in(evaluation_overlap._documents(run, name))
    assert len(long) > 3 and found.near == long
    assert found.exact


def test_prompts_of_a_measured_set(nano_run: Run) -> None:
    done = instella(nano_run.folder, "evaluation", "prompts", "sft", "arc_easy")
    assert done.code == 0, done.err
    told = [json.loads(line) for line in done.out.splitlines()]
    records = read_jsonl(nano_run.results / "evaluate_sft" / "arc_easy.jsonl")
    assert [row["key"] for row in told] == [record["key"] for record in records]
    assert len({row["prompt_sha256"] for row in told}) == len({r["cluster"] for r in records})
    done = instella(nano_run.folder, "evaluation", "prompts", "sft", "mmlu")
    assert done.code == 2 and "evaluate_sft: measures no set 'mmlu'" in done.err
