"""Claims are judged from records, and the table tells what was demanded."""

import pytest

from instella.canonical import write_json
from instella.errors import VerificationError
from instella.evaluation.records import write_scores
from instella.evaluation.table import Measured, judge, markdown, results
from instella.recipe.settings import Claim


@pytest.fixture
def measured(tmp_path):
    losses = {
        "unigram": 6.0,
        "pretrain_stage1": 5.0,
        "pretrain_stage2_seed1": 3.0,
        "pretrain_stage2_seed2": 4.0,
        "pretrain_stage2": 3.4,
    }
    for name, loss in losses.items():
        folder = tmp_path / name
        folder.mkdir()
        records = [
            {"key": str(i), "cluster": str(i), "figures": {"loss": [loss * (i + 1), i + 1.0]}}
            for i in range(10)
        ]
        write_scores(folder, {"qa": records}, 200, 0)
    folders = {name: tmp_path / name for name in losses if name != "unigram"}
    return Measured(folders, tmp_path / "unigram", 200, 0)


def claim(**values):
    return Claim(about="a claim", set="qa", metric="loss", **values)


def test_difference_to_the_baseline(measured):
    judged = judge(claim(stage="pretrain_stage1", against="unigram", at_most=-0.9), measured)
    assert judged.met
    assert judged.measured.value == pytest.approx(-1.0)


def test_bound_that_does_not_hold(measured):
    judged = judge(claim(stage="pretrain_stage1", against="unigram", at_most=-1.1), measured)
    assert not judged.met


def test_average_of_the_seeds(measured):
    judged = judge(claim(stage="pretrain_stage2", against="seeds", at_most=0.01), measured)
    assert judged.measured.value == pytest.approx(-0.1)
    assert judged.met


def test_interval_must_lie_above(measured):
    met = judge(
        claim(stage="pretrain_stage1", against="pretrain_stage2", interval_above=1.5), measured
    )
    missed = judge(
        claim(stage="pretrain_stage1", against="pretrain_stage2", interval_above=1.7), measured
    )
    assert met.met
    assert not missed.met


def test_a_set_that_was_not_measured_is_named(measured):
    with pytest.raises(VerificationError, match="pretrain_stage1 was not measured on sums"):
        judge(Claim(about="x", set="sums", metric="loss", stage="pretrain_stage1"), measured)


def test_table_shows_claims_and_figures(measured):
    values = results(measured, (claim(stage="pretrain_stage1", at_most=4.0),), {})
    text = markdown(values)
    assert "| a claim | 5.0000 | [5.0000, 5.0000] | at most 4 | **no** |" in text
    assert "| unigram | 6.0000 |" in text


def test_results_are_canonical_values(measured, tmp_path):
    write_json(tmp_path / "results.json", results(measured, (claim(stage="pretrain_stage1"),), {}))
    assert (tmp_path / "results.json").read_bytes().endswith(b"}\n")
