"""Held-out items in what a whole run trained on, against plain sets of words."""

import json
from pathlib import Path

import pytest
from run_helpers import Run

from instella.canonical import read_jsonl
from instella.data.adapters import texts
from instella.data.documents import Document
from instella.data.packing import documents_of, split_options
from instella.evaluation.near import runs
from instella.evaluation.overlap import NEAR_SHARE, NEAR_WORDS
from instella.prove.processes import instella

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def kept(run: Run, name: str) -> list[Document]:
    """The documents that a tokens stage kept."""
    stage = run.graph()[name]
    inputs = {role: run.results / other for role, other in stage.inputs.items()}
    ledger = {
        (row["source"], row["key"]) for row in read_jsonl(run.results / name / "documents.jsonl")
    }
    return [
        document
        for part in stage.settings["data"].parts
        for document in documents_of(split_options(part)[0], inputs)
        if (part.source, document.key) in ledger
    ]


def test_what_a_run_trained_on_holds_no_item_and_these_nearly(
    nano_run: Run, tmp_path: Path
) -> None:
    done = instella(nano_run.folder, "evaluation", "overlap", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    documents = [
        set(runs(" ".join(texts(document)), NEAR_WORDS))
        for name in ("tokens_pretrain_stage1", "tokens_pretrain_stage2", "tokens_sft")
        for document in kept(nano_run, name)
    ]
    found = 0
    for path in sorted((nano_run.results / "heldout").glob("*.jsonl")):
        items = [set(runs(row.get("text", row.get("question")), NEAR_WORDS))
                 for row in read_jsonl(path)]  # fmt: skip
        near = sum(
            any(len(item & held) >= NEAR_SHARE * len(item) for held in documents)
            for item in items
            if item
        )
        assert told["sft"][path.stem] == {
            "items": len(items), "exact": 0, "near": near, "short": items.count(set()),
        }  # fmt: skip
        found += near
    assert found > 0
    # What a checkpoint came from is in its data too.
    for name, counts in told["pretrain_stage1"].items():
        assert counts["near"] <= told["grpo3"][name]["near"]
    overlap = tmp_path / "overlap.json"
    overlap.write_text(done.out)
    published = Path(nano_run.folder) / "recipes" / "published"
    options = ["--published", str(published), "--overlap", str(overlap)]
    table = instella(nano_run.folder, "evaluation", "reconcile", *options)
    assert table.code == 0 and " near of " in table.out
