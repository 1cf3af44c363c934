"""``instella evaluation``: what it prints, and one line for each fault."""

import json
from pathlib import Path

import pytest
from suites_helpers import FOLDER, RECIPE, ROOT

from instella.canonical import write_jsonl
from instella.cli import main

PLACE = ["--config", str(ROOT / "config.yaml")]


PLACES = [word for name in ("model", "output", "hub", "name", "model_args")
          for word in ("--with", f"{name}=/data/{name}")]  # fmt: skip


@pytest.fixture
def said(capsys):
    def run(*arguments, code=0):
        assert main([*PLACE, "evaluation", *map(str, arguments)]) == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return run


def test_suites_are_printed(said):
    text = said("suites", "--recipe", RECIPE)
    assert "  ARC-Easy: arc_easy::olmo1, 0-shot, acc_uncond, " in text
    assert len(text.splitlines()) == 4 + 32
    assert json.loads(said("suites", "--recipe", RECIPE, "--json"))["instruct"]["tasks"]["IFEval"][
        "items"
    ] == 541  # fmt: skip


def test_the_command_of_a_harness_is_printed(said):
    options = ("suites", "--recipe", RECIPE, "--with", "model=a model", "--with", "output=out")
    assert said(*options, "--command", "AIME24,AMC") == (
        "bash ./scripts/eval/eval_model.sh --model 'a model' --datasets aime amc --dataset-dir "
        "data_processed --output-dir out  # the copy of DeepScaleR's evaluation in M "
        "@65534d33d47a4d1d97b6e73b35bdf169968a851c\n"
    )
    line = said(*options, "--command", "MT-Bench", "--with", "name=ours")
    assert line.startswith("python -m fastchat.llm_judge.gen_model_answer --model-path 'a model' ")
    more = ("--suite", "base", "--with", "batch=8", "--with", "model_args={}")
    assert " --task mmlu:mc::olmes --batch-size 8 " in said(*options, "--command", "MMLU", *more)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("MMLU",), "MMLU: in base and instruct; add --suite"),
        (("MMLU", "--suite", "bose"), "no suite 'bose'; choose one of base"),
        (("NLLB",), "NLLB: no suite has it"),
        (("AIME24",), "give a value for model"),
        (("MT-Bench,IFEval",), "MT-Bench: has a command of its own; ask for it alone"),
        (("AIME24", "--with", "model"), "--with model: write NAME=TEXT"),
        (("IFEval", "--image", *PLACES), "rocm-olmes: requirements.lock is missing, so what the"),
        (("MT-Bench", "--image", *PLACES), "FastChat is known by 1ffd4a6 only, which pins nothing"),
        (("AIME24", "--image", *PLACES), "no image of the kit holds it; omit --image"),
    ],
)
def test_a_command_that_cannot_be_rendered(said, arguments, text):
    line = said("suites", "--recipe", RECIPE, "--command", *arguments, code=2)
    assert text in line and line.count("\n") == 1


def test_an_image_belongs_to_a_command(said):
    assert "--image: goes with --command" in said("suites", "--recipe", RECIPE, "--image", code=2)


def test_a_recipe_without_publications_needs_a_folder(said, tmp_path):
    tiny = ROOT / "recipes" / "tiny.yaml"
    assert "add --published recipes/published" in said("reconcile", "--recipe", tiny, code=2)
    places = ("--recipe", tiny, "--results", tmp_path)
    text = said("reconcile", *places, "--published", FOLDER)
    assert "304 published scores: 304 not comparable." in text


def test_scores_of_a_file_stand_in_the_table(said, tmp_path):
    scores = tmp_path / "scores.json"
    figure = {"table": "instruct", "model": "amd/Instella-3B-SFT", "benchmark": "IFEval"}
    scores.write_text(json.dumps([figure | {"value": 70.0, "error": 1.0}]))
    options = ("--recipe", RECIPE, "--results", tmp_path, "--scores", scores)
    rows = json.loads(said("reconcile", *options, "--json"))["rows"]
    (row,) = (row for row in rows if row["ours"])
    assert (row["benchmark"], row["published"], row["verdict"]["word"]) == (
        "IFEval",
        66.17,
        "consistent",
    )
    scores.write_text("[{}]")
    assert "entry 0: table has to be text" in said("reconcile", *options, code=2)


def test_positions_are_made_checked_and_scored(said, tmp_path: Path):
    rows = [json.loads(line) for line in said("ttt", "make", "dTTT", "--count", 10).splitlines()]
    assert len({row["key"] for row in rows}) == 10
    items, records = tmp_path / "items.jsonl", tmp_path / "records.jsonl"
    write_jsonl(items, rows)
    assert "10 of 10 agree" in said("ttt", "check", "dTTT", items)
    everything = "\\boxed{ABCDEFGHIJKLMNO}"
    right = [{"key": row["key"], "samples": [f"\\boxed{{{row['answer']}}}", everything]}
             for row in rows]  # fmt: skip
    write_jsonl(records, right)
    assert said("ttt", "score", records, items).startswith("pass@1 0.5000 [0.5000, 0.5000], 10")
    published = said("ttt", "score", records, items, "--rule", "published")
    assert published.startswith("pass@1 1.0000")
    more = said("ttt", "make", "dTTT", "--count", 10, "--avoid", items)
    assert not {row["key"] for row in rows} & {json.loads(x)["key"] for x in more.splitlines()}


def test_gold_that_the_rule_does_not_give_is_shown(said, tmp_path, capsys):
    items = tmp_path / "items.jsonl"
    write_jsonl(items, [{"game": "oTTT", "moves": "ADBE", "answer": "F"}])
    assert main([*PLACE, "evaluation", "ttt", "check", "oTTT", str(items)]) == 1
    text = capsys.readouterr().out
    assert text.startswith("ADBE: gold F, rule C (win)\n") and "0 of 1 agree" in text


def records(path, values):
    rows = [{"key": str(n), "cluster": str(n), "figures": {"acc": [v, 1.0]}}
            for n, v in enumerate(values)]  # fmt: skip
    write_jsonl(path, rows)
    return path


def test_a_paired_difference_is_printed(said, tmp_path):
    left = records(tmp_path / "left.jsonl", [1.0, 1.0, 0.0, 0.0, 1.0])
    right = records(tmp_path / "right.jsonl", [0.0, 1.0, 0.0, 1.0, 0.0])
    text = said("difference", left, right, "acc")
    assert text == "acc +0.2000 [-0.5334, +0.9334], 5 items in 5 clusters\n"
    assert "no figure loss; it has acc" in said("difference", left, right, "loss", code=2)
    (tmp_path / "rows.jsonl").write_text('{"key":"a"}\n')
    line = said("difference", left, tmp_path / "rows.jsonl", "acc", code=2)
    assert "line 1: lacks the text cluster" in line
    fewer = records(tmp_path / "fewer.jsonl", [1.0, 0.0])
    assert "hold different items: 2" in said("difference", left, fewer, "acc", code=2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"figures": {"acc": ["x", 1.0]}}, "line 1: acc is no pair of numbers"),
        ({"figures": {"acc": [1.0]}}, "line 1: acc is no pair of numbers"),
        ({"figures": {"acc": [1e300, 1.0]}}, "line 1: acc is no pair of numbers"),
        ({"figures": {"acc": [1.0, -1.0]}}, "counts a negative number of marks"),
        ({"figures": {"acc": [0.0, 0.0]}}, "acc: no record counts, so it has no mean"),
        ({"figures": 1}, "holds no records of an evaluation"),
        ({"key": 1}, "line 1: lacks the text key"),
        (None, "line 2: key 0 stands there twice"),
    ],
)
def test_records_that_are_none_are_one_line(said, tmp_path, change, text):
    left = records(tmp_path / "left.jsonl", [1.0])
    row = {"key": "0", "cluster": "0", "figures": {"acc": [1.0, 1.0]}}
    write_jsonl(tmp_path / "right.jsonl", [row, row] if change is None else [row | change])
    line = said("difference", left, tmp_path / "right.jsonl", "acc", code=2)
    assert text in line and line.count("\n") == 1


def test_a_log_likelihood_that_is_no_number_is_no_record(said, tmp_path):
    left = records(tmp_path / "left.jsonl", [1.0])
    (tmp_path / "nan.jsonl").write_text(left.read_text().replace("1.0", "NaN", 1))
    line = said("difference", left, tmp_path / "nan.jsonl", "acc", code=4)
    assert "line 1: not canonical JSON" in line and line.count("\n") == 1


def test_items_and_samples_of_a_game_are_checked(said, tmp_path):
    items, samples = tmp_path / "items.jsonl", tmp_path / "records.jsonl"
    rows = [{"key": str(n), "answer": "A"} for n in range(3)]
    write_jsonl(items, rows)
    # An empty text is an answer, and a wrong one.
    write_jsonl(samples, [{"key": str(n), "samples": ["", "\\boxed{A}"]} for n in range(2)])
    text = said("ttt", "score", samples, items)
    assert text.startswith("pass@1 0.5000 [") and "2 of 3 items" in text
    write_jsonl(items, [*rows, rows[0]])
    assert "line 4: key 0 stands there twice" in said("ttt", "score", samples, items, code=2)
    write_jsonl(items, rows)
    write_jsonl(samples, [{"key": "0", "samples": []}, {"key": "1", "samples": ["x"]}])
    assert "pass@1 needs 1 samples, found 0" in said("ttt", "score", samples, items, code=2)
    write_jsonl(samples, [{"key": "0", "samples": "x"}])
    assert "0 has no samples; give sampled records" in said("ttt", "score", samples, items, code=2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("ttt", "make", "xTTT"), "choose one of oTTT, dTTT, cTTT, sTTT"),
        (("ttt", "check", "oTTT", "none.parquet"), "give a readable file"),
        (("ttt", "score", "none.jsonl", "none.jsonl"), "give a readable .jsonl file"),
    ],
)
def test_faults_are_one_line(said, arguments, text):
    line = said(*arguments, code=2)
    assert text in line and line.count("\n") == 1
