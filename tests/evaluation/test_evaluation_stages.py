"""Stages baseline, evaluate and results on held-out sets of each kind."""

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from evaluation_helpers import ITEMS, NUMERICS, SHAPE, held_out, real_network

from instella.artifacts.job import Job
from instella.canonical import json_bytes, write_jsonl, write_npy
from instella.errors import BadUse, VerificationError
from instella.network.folder import save_folder
from instella.progress import Reporter
from instella.recipe.check_evaluation import METRICS
from instella.recipe.settings import Claim
from instella.stages import baseline, evaluate, results

SETS = {kind: held_out(kind, max_new_tokens=4, samples=2) for kind in METRICS}
COMMON = {"seed": 3, "bootstrap": 100}
CHOICES = {"choice": {"metric": "acc_uncond", "chance": 0.25}}
TOKENS = [0, 70, 70, 71, 0, 90, 257]


def job(output: Path, inputs: dict[str, Path], stream=None, **settings) -> Job:
    output.mkdir(parents=True)
    return Job(
        stage="stage",
        settings={**COMMON, **settings},
        inputs=inputs,
        output=output,
        scratch=output,
        downloads=output,
        recipe_folder=output,
        numerics=NUMERICS,
        ranks=1,
        report=Reporter("stage", stream=stream or io.StringIO()),
    )


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, tokenizer):
    base = tmp_path_factory.mktemp("inputs")
    for name in ("model", "heldout", "tokens"):
        (base / name).mkdir()
    save_folder(base / "model", real_network(), tokenizer, SHAPE.max_position_embeddings)
    for kind, items in ITEMS.items():
        write_jsonl(base / "heldout" / f"{kind}.jsonl", items)
    write_npy(base / "tokens" / "tokens.npy", np.array(TOKENS, dtype=np.uint16))
    names = ("model", "heldout", "tokens")
    return {"tokenizer": tokenizer, **{name: base / name for name in names}}


def evaluated(output, inputs, sets=SETS):
    evaluate.run(job(output, inputs, sets=sets, prompt_suffix="Box it.", rollout="own"))


def baselined(output, inputs, sets=None):
    baseline.run(job(output, inputs, sets=sets or {"text": SETS["text"]}))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, inputs):
    """All three stages, two checkpoints with the same network."""
    base = tmp_path_factory.mktemp("run")
    for name in ("sft", "dpo"):
        evaluated(base / name, inputs)
    baselined(base / "baseline", inputs)
    claims = (
        Claim("worse than counting", "text", "loss", "sft", against="unigram", at_least=0.0),
        Claim("nothing changed", "preference", "margin", "dpo", "sft", at_least=0.0, at_most=0.0),
        Claim("solved", "problem", "pass@1", "dpo", at_least=0.5),
    )
    folders = {name: base / name for name in ("sft", "dpo", "baseline")}
    task = job(
        base / "results", folders, claims=claims, checkpoints=("sft", "dpo"), choices=CHOICES
    )
    results.run(task)
    return base


def test_evaluate_writes_records_of_every_set_and_scores(run_folder):
    found = files(run_folder / "sft")
    assert sorted(found) == sorted([*(f"{kind}.jsonl" for kind in ITEMS), "scores.json"])
    scores = json.loads(found["scores.json"])
    assert {name: set(metrics) for name, metrics in scores.items()} == {
        kind: set(metrics) for kind, metrics in METRICS.items()
    }
    for kind, items in ITEMS.items():
        records = [json.loads(line) for line in found[f"{kind}.jsonl"].splitlines()]
        assert [record["key"] for record in records] == [item["key"] for item in items]
        for metric, figure in scores[kind].items():
            pairs = [record["figures"][metric] for record in records]
            total = sum(pair[0] for pair in pairs) / sum(pair[1] for pair in pairs)
            assert figure["value"] == pytest.approx(total)
            assert figure["low"] <= figure["high"]
            assert figure["items"] == len(items)


def test_evaluate_gives_the_same_bytes_again(run_folder):
    assert files(run_folder / "sft") == files(run_folder / "dpo")


def test_every_line_is_canonical_json(run_folder):
    paths = [path for path in run_folder.glob("*/*") if path.suffix in (".json", ".jsonl")]
    assert len(paths) == 6 + 6 + 2 + 1
    for path in paths:
        for line in path.read_bytes().splitlines(keepends=True):
            assert json_bytes(json.loads(line)) == line, path


def test_baseline_by_hand(run_folder, bench):
    counts = {token: TOKENS.count(token) + 1 for token in range(bench.encoder.vocab_size)}
    total = len(TOKENS) + 258
    lines = (run_folder / "baseline" / "text.jsonl").read_bytes().splitlines()
    for line, item in zip(lines, ITEMS["text"], strict=True):
        record = json.loads(line)
        predicted = [*bench.encoder.encode(item["text"]), 0]
        loss = -sum(math.log(counts[token] / total) for token in predicted)
        assert record["figures"]["loss"] == [pytest.approx(loss), len(predicted)]


def test_baseline_and_network_predict_the_same_tokens(run_folder):
    def shares(name):
        lines = (run_folder / name / "text.jsonl").read_bytes().splitlines()
        records = [json.loads(line) for line in lines]
        return [(r["key"], r["cluster"], r["figures"]["loss"][1]) for r in records]

    assert shares("baseline") == shares("sft")


def test_results_judge_the_claims(run_folder):
    values = json.loads((run_folder / "results" / "results.json").read_bytes())
    assert [claim["met"] for claim in values["claims"]] == [True, True, False]
    assert set(values["checkpoints"]) == {"sft", "dpo"}
    assert values["claims"][1]["measured"] == {"value": 0.0, "low": 0.0, "high": 0.0, "items": 3}
    table = (run_folder / "results" / "table.md").read_text(encoding="utf-8")
    assert "| solved | 0.0000 | [0.0000, 0.0000] | at least 0.5 | **no** |" in table
    for kind, metrics in METRICS.items():
        for metric in metrics:
            shown = kind != "choice" or metric == "acc_uncond"
            assert (f"## {kind}, {metric}\n" in table) == shown
    assert "Guessing scores 0.25." in table


def test_results_say_which_claim_is_missed(run_folder, tmp_path):
    folders = {name: run_folder / name for name in ("sft", "baseline")}
    claims = (Claim("never", "text", "loss", "sft", at_most=0.0),)
    stream = io.StringIO()
    results.run(
        job(tmp_path / "out", folders, stream, claims=claims, checkpoints=("sft",), choices={})
    )
    assert stream.getvalue() == "stage: claim not met: never\n"


def test_a_checkpoint_without_a_suite_has_no_scores(inputs, tmp_path):
    evaluated(tmp_path / "out", inputs, sets={})
    assert files(tmp_path / "out") == {"scores.json": b"{}\n"}


@pytest.mark.parametrize("run", [evaluated, baselined])
def test_an_empty_set_is_named(inputs, tmp_path, run):
    (tmp_path / "heldout").mkdir()
    (tmp_path / "heldout" / "none.jsonl").write_bytes(b"")
    changed = {**inputs, "heldout": tmp_path / "heldout"}
    with pytest.raises(VerificationError, match="held-out set none has no item"):
        run(tmp_path / "out", changed, {"none": held_out("text")})


@pytest.mark.parametrize("kind", ["answer", "preference", "choice", "problem"])
def test_a_set_whose_every_item_is_dropped_is_named(inputs, tmp_path, kind):
    wanted = f"held-out set {kind}: none of its 3 items fits in sequence_length 8; raise it"
    with pytest.raises(BadUse, match=wanted) as caught:
        evaluated(tmp_path / "out", inputs, {kind: held_out(kind, 8, max_new_tokens=4)})
    assert "\n" not in str(caught.value)
    assert files(tmp_path / "out") == {}


def test_a_bad_line_is_named(inputs, tmp_path):
    (tmp_path / "heldout").mkdir()
    (tmp_path / "heldout" / "text.jsonl").write_bytes(b'{"key":"a","text":"b"}\n[1]\n')
    changed = {**inputs, "heldout": tmp_path / "heldout"}
    with pytest.raises(VerificationError, match=r"text\.jsonl, line 2: not an object"):
        evaluated(tmp_path / "out", changed, {"text": SETS["text"]})
