"""Held-out items as rows of the harness, its results as records, and how it is started.

The harness itself runs in an environment of its own: ``benchmarks/harness_checks.py``.
"""

import hashlib
import math

import pytest
from suites_helpers import ROOT

from instella.canonical import json_bytes, sha256_bytes, sha256_file
from instella.cli import main
from instella.commands import evaluation_harness
from instella.commands.evaluation_harness import environment_python
from instella.errors import Incomplete
from instella.evaluation.harness.rows import record_of, rows_of

ASKED = "<|endoftext|><|user|>\n1+1?\n<|assistant|>\n"
ITEM = {
    "key": "k", "question": "1+1?", "answer": " 2 ", "text": "One.", "chosen": "2",
    "rejected": "3", "choices": ["2", "3"], "gold": 0,
}  # fmt: skip
WANTED = {
    "text": {"text": "One."},
    "answer": {"context": ASKED, "target": "2<|endoftext|>"},
    "preference": {"context": ASKED, "choices": ["3<|endoftext|>", "2<|endoftext|>"], "gold": 1},
    "choice": {"context": "Question: 1+1?\nAnswer:", "choices": ["2", "3"], "gold": 0},
    "problem": {"context": ASKED.replace("?\n", "? Box it.\n"), "answer": " 2 "},
}


@pytest.mark.parametrize("kind", WANTED)
def test_rows_are_what_the_stages_show(kind):
    cluster = hashlib.sha256(b"1+1?").hexdigest()
    (row,) = rows_of(kind, [ITEM], "Box it.")
    assert row == {"key": "k", "cluster": cluster, **WANTED[kind]}


def test_a_text_is_its_own_cluster_and_an_empty_choice_has_no_row():
    (row,) = rows_of("text", [{"key": "k", "text": "One."}], "")
    assert row["cluster"] == "k"
    assert rows_of("choice", [ITEM | {"choices": ["", "3"]}], "") == []


def logged(arguments, responses, **metrics):
    """What the harness logs for an item."""
    return {
        "doc": {"key": "k", "cluster": "c"}, "arguments": arguments,
        "resps": [[one] for one in responses], "filtered_resps": responses,
        "metrics": list(metrics), **metrics,
    }  # fmt: skip


def test_records_of_choices():
    arguments = [("Which?", " a"), ("Which?", " b")]
    record = record_of(logged(arguments, [(-2.0, False), (-1.0, True)], acc=1.0, acc_norm=0.0))
    assert record == {
        "key": "k", "cluster": "c", "prompt_sha256": sha256_bytes(b"Which?"),
        "requests_sha256": sha256_bytes(json_bytes([["Which?", " a"], ["Which?", " b"]])),
        "figures": {"acc": [1.0, 1.0], "acc_norm": [0.0, 1.0]},
        "loglikelihoods": [-2.0, -1.0], "greedy": [False, True],
    }  # fmt: skip


def test_records_of_texts_and_answers():
    record = record_of(logged([("four",)], [-2.0], bits_per_byte=(-2.0, 4)))
    assert record["figures"] == {"bits_per_byte": [2.0 / math.log(2), 4.0]}
    assert record["loglikelihoods"] == [-2.0] and record["prompt_sha256"] == sha256_bytes(b"")
    record = record_of(logged([("q", "a")], [(-3.0, True)], perplexity=-3.0, acc=1))
    assert record["figures"] == {"acc": [1.0, 1.0], "loss_per_item": [3.0, 1.0]}
    arguments = [("q", {"until": ["."], "max_gen_toks": 4})]
    record = record_of(logged(arguments, ["so 2"], exact_match=0.0))
    assert (record["samples"], record["answers"]) == (["so 2"], ["so 2"])
    assert record["figures"] == {"exact_match": [0.0, 1.0]}


def test_an_environment_holds_what_its_lock_says(tmp_path):
    lock, folder = tmp_path / "harness.lock", tmp_path / "harness"
    lock.write_text("a==1\n")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("")
    with pytest.raises(Incomplete, match=r"not set up from harness.lock; call ./kit setup harn"):
        environment_python(folder, lock)
    (folder / "harness.stamp").write_text(f"{sha256_file(lock)}  -\n")
    assert environment_python(folder, lock) == folder / "bin" / "python"
    lock.write_text("a==2\n")
    with pytest.raises(Incomplete, match=r"call ./kit setup harness"):
        environment_python(folder, lock)


def test_the_lock_goes_with_that_of_a_run():
    """Our package imports there: the same torch, transformers and numpy."""
    locks = [ROOT / "requirements" / name for name in ("run.lock", "environments/harness.lock")]
    run, harness = (
        dict(line.split()[0].split("==") for line in lock.read_text().splitlines()
             if line and line[0].isalnum())
        for lock in locks
    )  # fmt: skip
    assert harness["lm-eval"] and harness["torch"] == "2.13.0+cpu"
    shared = run.keys() & harness.keys()
    assert {"torch", "transformers", "numpy", "tokenizers", "safetensors"} <= shared
    assert {name: harness[name] for name in shared} == {name: run[name] for name in shared}


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("sft", "--tasks", "mmlu"), "--tasks: no held-out set 'mmlu'; choose of passages", 2),
        (("heldout",), "heldout: makes no checkpoint; see instella stages", 2),
        (("sft",), "sft: has no result yet; run the recipe to its end", 3),
        (("sftt",), "did you mean sft", 2),
        (("sft", "--batch", "0"), "'0' is no whole number from 1 to 4096", None),
    ],
)
def test_what_cannot_be_measured_is_one_line(tmp_path, capsys, arguments, words, code):
    line = [
        "--config", str(ROOT / "config.yaml"), "--results", str(tmp_path), "evaluation", "harness",
        *arguments, "--recipe", str(ROOT / "recipes" / "nano.yaml"), "--output",
        str(tmp_path / "out"),
    ]  # fmt: skip
    if code is None:
        with pytest.raises(SystemExit):
            main(line)
    else:
        assert main(line) == code
    printed = capsys.readouterr().err
    assert words in printed and printed.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_harness_has_no_way_to_the_hub():
    assert set(evaluation_harness.OFFLINE.values()) == {"1"}
