"""What a checkpoint saw, and which checkpoints saw a document, in a whole run."""

import json
from typing import Any

import numpy as np
import pytest
from run_helpers import Run

from instella.canonical import read_jsonl, sha256_bytes
from instella.prove.processes import instella
from instella.training.order import Cursor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def asked(run: Run, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    """Objects that ``instella data ... --json`` prints, one a line."""
    done = instella(run.folder, "data", *arguments, "--json")
    assert done.code == code, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_the_lineage_of_the_last_checkpoint(nano_run: Run) -> None:
    lines = asked(nano_run, "trace", "grpo3")
    assert [line["stage"] for line in lines] == [
        "pretrain_stage1", "pretrain_stage2_seed5796", "pretrain_stage2_seed6198",
        "pretrain_stage2_seed8915", "pretrain_stage2", "sft", "dpo", "math_sft1", "math_sft2",
        "grpo1", "grpo2", "grpo3",
    ]  # fmt: skip
    recipe = nano_run.graph()
    for line in lines:
        if line["kind"] == "merge":
            continue
        steps = read_jsonl(nano_run.results / line["stage"] / "steps.jsonl")
        assert line["steps"] == len(steps)
        assert line["epochs"] == steps[-1]["epoch"] + 1
        data = recipe[line["tokens"]].settings["data"]
        assert set(line["sources"]) <= {part.source for part in data.parts}
        if line["kind"] == "pretrain":
            seen = sum(source["tokens"] for source in line["sources"].values())
            assert seen == sum(step["tokens"] for step in steps)
    done = instella(nano_run.folder, "data", "trace", "pretrain_stage1")
    assert done.code == 0 and "  code: " in done.out and " tokens, steps 1 to " in done.out


def test_a_step_names_the_documents_of_its_windows(nano_run: Run) -> None:
    stage = nano_run.graph()["pretrain_stage1"].settings["pretrain"]
    folder = nano_run.results / "tokens_pretrain_stage1"
    tokens = np.load(folder / "tokens.npy")
    length, training = stage.data.sequence_length, stage.training
    order = Cursor(
        len(tokens) // length, training.global_batch, training.seed, training.epochs,
        training.max_steps,
    )  # fmt: skip
    ledger = read_jsonl(folder / "documents.jsonl")
    document = (np.cumsum(tokens == 0) - (tokens == 0)).reshape(-1, length)
    for step in (1, 2, order.total_steps):
        numbers = np.unique(document[order.at(step - 1)[1]]).tolist()
        found = asked(nano_run, "trace", "pretrain_stage1", "--step", f"{step}:{step}")
        assert found == [{**ledger[number], "steps": [step]} for number in numbers]


def test_a_document_is_followed_to_the_checkpoints(nano_run: Run) -> None:
    ledger = read_jsonl(nano_run.results / "tokens_math_sft1" / "documents.jsonl")
    (found,) = asked(nano_run, "where", ledger[0]["sha256"].upper())
    place = next(item for item in found["places"] if item["ledger"] == "tokens_math_sft1")
    document = next(item for item in place["documents"] if item["key"] == ledger[0]["key"])
    for step in document["steps"]["math_sft1"]:
        listed = asked(nano_run, "trace", "math_sft1", "--step", str(step))
        assert ledger[0]["key"] in [item["key"] for item in listed]
    assert found["checkpoints"] == ["math_sft1", "math_sft2", "grpo1", "grpo2", "grpo3"]
    assert {"tokens_math_sft1", "math_sft1", "evaluate_grpo3", "results"} <= set(found["rerun"])
    assert not {"tokens_sft", "dpo", "evaluate_sft", "heldout"} & set(found["rerun"])


def test_a_text_is_looked_for_in_the_sources(nano_run: Run) -> None:
    ledger = read_jsonl(nano_run.results / "tokens_pretrain_stage1" / "documents.jsonl")
    entry = next(item for item in ledger if item["source"] == "code")
    text = (nano_run.results / "source_code" / entry["key"]).read_text(encoding="utf-8")[:4000]
    wanted = next(line for line in text.splitlines() if len(line) > 40)
    (found,) = asked(nano_run, "where", wanted)
    place = next(item for item in found["places"] if item["ledger"] == "tokens_pretrain_stage1")
    assert entry["key"] in [item["key"] for item in place["documents"]]
    for item in place["documents"]:
        source = nano_run.results / "source_code" / item["key"]
        assert wanted in source.read_text(encoding="utf-8")
    done = instella(nano_run.folder, "data", "where", wanted)
    assert done.code == 0 and "to run again without it: " in done.out


def test_a_text_is_looked_for_in_what_the_model_was_shown(nano_run: Run) -> None:
    shown = "output the final answer within \\boxed{}.\n<|assistant|>"
    (nano_run.folder / "wanted.txt").write_text(f"{shown}\n", encoding="utf-8")
    (found,) = asked(nano_run, "where", "@wanted.txt")
    assert [place["ledger"] for place in found["places"]] == [
        "tokens_math_sft1", "tokens_math_sft2", "tokens_grpo1", "tokens_grpo2", "tokens_grpo3",
    ]  # fmt: skip
    total = sum(len(place["documents"]) for place in found["places"])
    for limit, arguments in ((20, ()), (total, ("--all",))):
        done = instella(nano_run.folder, "data", "where", "@wanted.txt", *arguments)
        assert done.code == 0, done.err
        assert sum(": in tokens_" in line for line in done.out.splitlines()) == limit
        told = f"and {total - limit:,} more documents: --all lists them too"
        assert (told in done.out) == (not arguments)


def test_a_trace_says_what_it_counts(nano_run: Run) -> None:
    done = instella(nano_run.folder, "data", "trace", "sft")
    told = [line for line in done.out.splitlines() if line.startswith("# ")]
    assert [line.split(":")[0] for line in told] == ["# documents", "# sightings", "# steps"]
    assert " sightings" in done.out and " updates 1" not in done.out


def test_what_is_not_there_is_told_by_the_exit_status(nano_run: Run) -> None:
    (found,) = asked(nano_run, "where", sha256_bytes(b"nothing"), code=1)
    assert found == {"checkpoints": [], "places": [], "rerun": []}
    assert asked(nano_run, "where", "a text that nobody has written", code=1)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("trace", "tokenizer"), 2, "makes no checkpoint"),
        (("trace", "grpo9"), 2, "did you mean grpo"),
        (("trace", "pretrain_stage2", "--step", "1:2"), 2, "has no steps of its own"),
        (("trace", "sft", "--step", "1:9999"), 2, "steps"),
        (("trace", "sft", "--step", "2:1"), 2, "write for example 1:10"),
        (("where", " "), 2, "empty"),
        (("where", "@"), 2, "has to stand in a file"),
        (("where", "@none.txt"), 2, "none.txt: No such file"),
        (("where", "1B70e92391e3b408"), 2, "give all 64 digits"),
        (("trace", "sft", "--results", "none"), 3, "run the recipe to its end"),
        (("where", "word", "--results", "none"), 3, "run the recipe to its end"),
    ],
)
def test_bad_questions_are_one_line(
    nano_run: Run, arguments: tuple[str, ...], code: int, told: str
) -> None:
    done = instella(nano_run.folder, "data", *arguments)
    assert done.code == code and told in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_damaged_source_is_not_believed(nano_copy: Run) -> None:
    rows = nano_copy.results / "source_sums" / "rows.jsonl"
    lines = rows.read_bytes().splitlines(keepends=True)
    rows.unlink()
    rows.write_bytes(b"".join(lines[:100]))
    done = instella(nano_copy.folder, "data", "where", "a text that nobody has written")
    assert done.code == 4 and "source_sums/rows.jsonl: not the bytes of its manifest" in done.err
