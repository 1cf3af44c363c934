"""The reconciliation: a row for every published score, averages as each table forms them."""

import json
import math
from dataclasses import replace

import pytest
from suites_helpers import SHARED

from instella.canonical import write_jsonl
from instella.errors import BadUse
from instella.evaluation.compare import CONSISTENT, HIGHER, LOWER, NOT_COMPARABLE, Score
from instella.evaluation.ours import Ours, of_file, of_run
from instella.evaluation.reconcile import (
    AVERAGE,
    JUDGED,
    NEEDS_JUDGE,
    NO_CHECKPOINT,
    Reconciliation,
)
from instella.evaluation.reconcile_table import markdown, plain

INSTRUCT = "amd/Instella-3B-Instruct"
BASE = "amd/Instella-3B"
MATH, MATH_SFT = "amd/Instella-3B-Math", "Instella-3B-Math-SFT"


@pytest.fixture
def reconciled(published, suites, measured):
    def rows(ours=None, foreign=""):
        made = Reconciliation(published, suites, measured, ours or {}, foreign).rows()
        return {(row.table, row.model, row.benchmark): row for row in made}

    return rows


def scores_of(published, table, model, change=0.0, error=0.5, **options):
    scores = published.results.tables[table].scores[model]
    return {
        (table, model, benchmark): Ours(
            Score(min((value or 50.0) + change, 100.0), error, 100, 100), **options
        )
        for benchmark, value in scores.items()
    }


def test_every_published_number_has_a_row(reconciled, published):
    rows = reconciled()
    tables = published.results.tables
    count = sum(len(scores) for table in tables.values() for scores in table.scores.values())
    averages = sum(len(table.averages or {}) for table in tables.values())
    gains = sum("gain_printed" in name for name in published.figures.figures)
    assert len(rows) == count + averages + gains == 304
    assert {row.verdict.word for row in rows.values()} == {NOT_COMPARABLE}


def test_rows_are_those_of_the_collected_results(reconciled):
    """../shared: the same scores, one for one, whatever each file calls its columns."""
    path = SHARED / "recipe" / "results.json"
    if not path.exists():
        pytest.skip("needs ../shared/recipe/results.json")
    collected = json.loads(path.read_text())
    values = sorted((row["value"] is None, row["value"] or 0.0) for row in collected)
    ours = reconciled().values()
    assert values == sorted((row.published is None, row.published or 0.0) for row in ours)


def test_a_score_that_is_an_image_is_unpublished(reconciled, published):
    rows = reconciled(scores_of(published, "math", MATH))
    unread = [row for row in rows.values() if row.published is None]
    assert len(unread) == 22
    assert {row.verdict.reason.partition(":")[0] for row in unread} == {
        "no published score can be read"
    }
    assert rows["math", MATH, "AIME24"].ours is not None
    assert "| AIME24 | unpublished |" in markdown(list(rows.values()))


def test_what_a_judge_marks_is_not_compared(reconciled, published):
    judged = ("AlpacaEval 2", "MT-Bench")
    for ours, reason in (({}, NEEDS_JUDGE), (scores_of(published, "instruct", INSTRUCT), JUDGED)):
        rows = reconciled(ours)
        for benchmark in judged:
            found = rows["instruct", INSTRUCT, benchmark].verdict
            assert (found.word, found.reason) == (NOT_COMPARABLE, reason)
    assert rows["instruct", INSTRUCT, "IFEval"].verdict.word == CONSISTENT
    assert rows["instruct", "Gemma-2-2B-Instruct", "MT-Bench"].verdict.reason == NO_CHECKPOINT


def test_a_figure_off_its_scale_is_refused(reconciled, published):
    with pytest.raises(BadUse, match=r"MT-Bench: 72\.3 is no score from 1 to 10; give it"):
        reconciled({("instruct", INSTRUCT, "MT-Bench"): Ours(Score(72.3, 1.0, 80, 80))})


def test_what_was_not_searched_for_says_so(reconciled, published):
    ours = scores_of(published, "base", BASE)
    ours["base", BASE, "MMLU"] = replace(ours["base", BASE, "MMLU"], overlap="0 exact, 1 near of 9")
    lines = markdown(list(reconciled(ours).values())).splitlines()
    own = [line for line in lines if line.startswith(f"| {BASE} |")]
    said = [line.rsplit("|", 2)[1].strip() for line in own]
    assert said.count("not checked") == 10 and said.count("0 exact, 1 near of 9") == 1


def test_scores_are_written_with_the_digits_of_their_table(reconciled):
    text = markdown(list(reconciled().values()))
    assert "| Gemma-2-2B | ARC-Easy | 59.30 |" in text
    assert "| amd/Instella-3B-Instruct | average | 44.87 (mean 44.87) |" in text
    assert "| DeepSeek-R1-Distill-Qwen-1.5B | MATH500 | 82.8 |" in text


def test_printed_averages_are_formed_again(reconciled):
    for row in reconciled().values():
        if row.benchmark == AVERAGE and row.published is not None:
            limit = 0.1 if row.table == "math_peers_deepscaler" else 0.0051
            assert abs(row.recomputed - row.published) <= limit


def test_the_instruct_mean_holds_mt_bench_on_its_own_scale(reconciled, published):
    rows = reconciled(scores_of(published, "instruct", INSTRUCT, error=0.3))
    row = rows["instruct", INSTRUCT, AVERAGE]
    scores = published.results.tables["instruct"].scores[INSTRUCT]
    assert row.published == 44.87
    assert row.ours.value == pytest.approx(math.fsum(scores.values()) / 9)
    assert row.ours.value == pytest.approx(44.87, abs=0.005)
    # Nine errors of 0.3: the mean's is a third of one of them.
    assert row.ours.error == pytest.approx(0.1)
    # Two of the nine were marked by a judge.
    assert (row.verdict.word, row.verdict.reason) == (NOT_COMPARABLE, JUDGED)
    # On a scale of 100 the mean would be far from the printed one.
    rescaled = (math.fsum(scores.values()) + 9 * scores["MT-Bench"]) / 9
    assert abs(rescaled - row.published) > 7


@pytest.mark.parametrize(("change", "word"), [(0.0, CONSISTENT), (20.0, HIGHER), (-20.0, LOWER)])
def test_verdicts_of_scores_and_averages(reconciled, published, change, word):
    rows = reconciled(scores_of(published, "base", BASE, change))
    judged = {key: row.verdict for key, row in rows.items() if row.ours is not None}
    assert len(judged) == 12
    assert {verdict.word for verdict in judged.values()} == {word}
    assert judged["base", BASE, "MMLU"].difference == pytest.approx(change)


def test_the_average_knows_the_noise_of_seeds(reconciled, published, suites, measured):
    spread = Reconciliation(published, suites, measured, {}).seed_deviation()
    assert spread == pytest.approx(0.1528, abs=1e-4)
    margin = reconciled(scores_of(published, "base", BASE))["base", BASE, AVERAGE].verdict.margin
    scores = published.results.tables["base"].scores[BASE]
    theirs = [
        value * (100 - value) / suites["base"].tasks[name].items for name, value in scores.items()
    ]
    expected = math.sqrt((sum(theirs) + 11 * 0.25) / 121 + spread**2)
    assert margin == pytest.approx(1.959964 * expected + 0.005, abs=1e-5)


def test_an_average_needs_all_its_scores(reconciled, published):
    ours = scores_of(published, "base", BASE)
    del ours["base", BASE, "BBH"]
    row = reconciled(ours)["base", BASE, AVERAGE]
    assert (row.verdict.word, row.ours) == (NOT_COMPARABLE, None)
    assert row.verdict.reason == "10 of its 11 scores are measured"


def test_a_deviation_of_protocol_bars_a_comparison_and_a_noted_one_does_not(reconciled, published):
    ours = scores_of(published, "base", BASE, noted=("capped-sets",))
    key = ("base", BASE, "PIQA")
    ours[key] = replace(ours[key], deviations=("choice-form",))
    rows = reconciled(ours)
    assert rows[key].verdict.word == NOT_COMPARABLE
    assert rows[key].verdict.reason == "protocol: choice-form"
    assert rows[key].deviations == ("choice-form", "capped-sets")
    assert rows["base", BASE, "MMLU"].verdict.word == CONSISTENT
    # The average holds the barred score.
    assert rows["base", BASE, AVERAGE].verdict.reason == "protocol: choice-form"


def test_an_unknown_number_of_items_is_a_reason(published, suites, measured):
    base = suites["base"]
    tasks = {**base.tasks, "BBH": replace(base.tasks["BBH"], items=None)}
    changed = {**suites, "base": replace(base, tasks=tasks)}
    ours = {("base", BASE, "BBH"): Ours(Score(39.74, 0.5, 10, 10))}
    rows = Reconciliation(published, changed, measured, ours).rows()
    (row,) = (row for row in rows if row.ours is not None)
    assert row.verdict.reason == "the published number of items is unknown"


def test_another_recipe_is_compared_with_nothing(reconciled, published):
    rows = reconciled(scores_of(published, "base", BASE), foreign="recipe tiny is another")
    assert {row.verdict.word for row in rows.values()} == {NOT_COMPARABLE}
    assert rows["base", BASE, "MMLU"].verdict.reason == "recipe tiny is another"


def test_a_printed_gain_is_compared_with_ours(reconciled, published):
    table = published.results.tables["math"]
    wanted = [*table.average_of]
    ours = {
        ("math", model, name): Ours(Score(value, 1.0, 100, 100))
        for model, value in ((MATH, 62.0), (MATH_SFT, 51.0))
        for name in wanted
    }
    row = reconciled(ours)["math", MATH, f"average gain over {MATH_SFT}"]
    assert (row.published, row.ours.value) == (10.81, pytest.approx(11.0))
    assert row.verdict.word == CONSISTENT
    assert row.ours.error == pytest.approx(math.sqrt(2 * 8) / 8)
    # Unknown scores count with the largest error that they can have.
    assert row.verdict.margin > 5
    ours = {key: replace(figure, score=Score(90.0, 1.0, 9, 9)) if key[1] == MATH else figure
            for key, figure in ours.items()}  # fmt: skip
    assert reconciled(ours)[row.table, row.model, row.benchmark].verdict.word == HIGHER


def test_a_figure_for_no_published_score_is_refused(reconciled):
    with pytest.raises(BadUse, match="base, amd/Instella-3B, PIQB: no published table"):
        reconciled({("base", BASE, "PIQB"): Ours(Score(1.0, 1.0, 1, 1))})


def test_a_deviation_without_an_entry_is_refused(reconciled):
    ours = {("base", BASE, "PIQA"): Ours(Score(1.0, 1.0, 1, 1), noted=("capped-sets", "typo"))}
    with pytest.raises(BadUse, match=r"PIQA: deviation typo has no entry in deviations\.yaml"):
        reconciled(ours)


@pytest.mark.parametrize(
    "change", [{"models": {"amd/Instella-4B": "dpo"}}, {"columns": {"bass": {}}}]
)
def test_measured_names_that_are_not_published_are_refused(published, suites, measured, change):
    changed = replace(measured, **change)
    with pytest.raises(BadUse, match=r"measured\.yaml: .*: not published"):
        Reconciliation(published, suites, changed, {}).rows()


def test_columns_and_models_name_what_exists(published, measured):
    ids = {item.id for item in published.deviations}
    assert measured.not_measured.deviation in ids
    for table, columns in measured.columns.items():
        for benchmark, column in columns.items():
            assert set(column.deviations + column.noted) <= ids
            assert benchmark in published.protocols.suites[table].tasks
    models = {model for table in published.results.tables.values() for model in table.scores}
    assert set(measured.models) <= models


def test_records_of_a_run_are_read(tmp_path, measured, published, reconciled):
    folder = tmp_path / "evaluate_pretrain_stage2"
    folder.mkdir()
    rows = [
        {"key": str(n), "cluster": str(n), "figures": {"acc_uncond": [float(n % 4 == 0), 1.0]}}
        for n in range(40)
    ]
    write_jsonl(folder / "arc_easy.jsonl", rows)
    overlap = {"items": 40, "exact": 0, "near": 3, "short": 1}
    checked = {"pretrain_stage2": {"arc_easy": overlap}, "sft": {"arc_easy": overlap}}
    found = of_run(tmp_path, measured, published.results, checked)
    assert set(found) == {("base", BASE, "ARC-Easy")}
    figure = found["base", BASE, "ARC-Easy"]
    assert figure.score.value == pytest.approx(25.0)
    assert figure.score.error == pytest.approx(100 * math.sqrt(0.1875 / 39))
    assert figure.deviations == ("choice-form",)
    assert figure.overlap == "0 exact, 3 near of 40, 1 too short for near"
    rows = reconciled(found)
    assert rows["base", BASE, "ARC-Easy"].verdict.reason == "protocol: choice-form"
    assert "| choice-form | 0 exact, 3 near of 40, 1 too short for near |\n" in markdown(
        list(rows.values())
    )


def entry(**changes):
    return {
        "table": "base",
        "model": BASE,
        "benchmark": "MMLU",
        "value": 58.0,
        "error": 0.4,
    } | changes


def test_figures_of_another_harness_are_read(tmp_path, reconciled):
    path = tmp_path / "scores.json"
    path.write_text(json.dumps([entry(), entry(benchmark="BBH", value=40, items=6511)]))
    rows = reconciled(of_file(path))
    assert rows["base", BASE, "MMLU"].verdict.word == CONSISTENT
    assert rows["base", BASE, "BBH"].ours.items == 6511


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({}, "expected a list of figures"),
        ([1], "entry 0: expected an object"),
        ([entry(), entry()], "entry 1: base, amd/Instella-3B, MMLU stands twice"),
        ([entry(table=1)], "entry 0: table has to be text"),
        ([entry(value="58")], "value has to be a number"),
        ([entry(value=True)], "value has to be a number"),
        ([entry(error=-1)], "at least 0"),
        ([entry(items=1.5)], "at least 0"),
        ([entry(noted="x")], "noted has to be a list of texts"),
        ([entry(extra=1)], "entry 0: expected an object"),
    ],
)
def test_figures_of_another_form_are_refused(tmp_path, entries, said):
    path = tmp_path / "scores.json"
    path.write_text(json.dumps(entries))
    with pytest.raises(BadUse, match=said):
        of_file(path)


def test_the_table_is_plain_data_and_text(reconciled, published):
    rows = list(reconciled(scores_of(published, "base", BASE)).values())
    values = plain(rows)
    assert values["verdicts"] == {CONSISTENT: 12, NOT_COMPARABLE: 292}
    compared = [row for row in values["rows"] if row["ours"]]
    assert all(row["interval"][0] < row["ours"]["value"] < row["interval"][1] for row in compared)
    text = markdown(rows)
    assert "| amd/Instella-3B | MMLU | 58.31 | 58.31 | [57.33, 59.29] | consistent |" in text
    assert "| amd/Instella-3B | average | 66.59 (mean 66.59) | 66.59 |" in text
    assert text.endswith("At 95%, up to 0.6 of 12 differ by chance.\n")
