"""The four stages with the rules as teacher, on real problems."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from synthesis_helpers import (
    PART,
    PROBLEMS,
    ROOT,
    STAGES,
    bytes_of,
    job_of,
    report_of,
    rows_of,
    run_all,
    write_source,
)

from instella.canonical import read_jsonl
from instella.data.adapters import read
from instella.data.documents import Conversation
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Part
from instella.stages import synthetic_abstract
from instella.synthesis import quantities
from instella.synthesis.interpreter import run as run_program

SOURCE = read_jsonl(PROBLEMS)
FOREIGN = [{"key": "a", "question": "What is six times seven, in all of history?", "answer": "42"}]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_source(folder, SOURCE, FOREIGN)
    run_all(folder)
    return folder


def test_every_number_of_a_problem_is_a_parameter(made: Path) -> None:
    rows = rows_of(made, "synthetic_abstract")
    assert len(rows) == len(SOURCE)
    first = rows[1]
    assert first["template"].startswith("Mira has {n1} stamps. She gives {n2} stamps")
    assert [item["value"] for item in first["parameters"]] == [45, 17, 9]
    assert first["answer"] == "37" and first["key"] == "problems/rows.jsonl#2"


def test_programs_give_the_known_answers(made: Path) -> None:
    rows = rows_of(made, "synthetic_program")
    assert len(rows) == len(SOURCE)
    for row in rows:
        values = {item["name"]: item["value"] for item in row["parameters"]}
        assert quantities.rounded(run_program(row["program"], values)) == Fraction(row["answer"])
    assert "s2 = s1+n3" in rows[1]["program"]


def test_new_problems_have_new_values_and_the_program_s_answer(made: Path) -> None:
    programs = {row["key"]: row for row in rows_of(made, "synthetic_program")}
    rows = rows_of(made, "synthetic_values")
    assert len(rows) > 2 * len(programs)
    seen = set()
    for row in rows:
        problem = programs[row["problem"]]
        assert row["values"] != {item["name"]: item["value"] for item in problem["parameters"]}
        assert int(row["answer"]) == run_program(problem["program"], row["values"])
        assert int(row["answer"]) >= 0
        stated = quantities.values_in(row["question"])
        assert all(stated[Fraction(value)] for value in row["values"].values())
        seen.add((row["problem"], json.dumps(row["values"], sort_keys=True)))
    assert len(seen) == len(rows), "no value set twice"
    rejected = report_of(made, "synthetic_values")["rejected_replies"]
    assert (
        rejected["the answer is no whole number"]
        and rejected["the answer is negative or too large"]
    )


def test_solutions_compute_and_end_in_the_answer(made: Path) -> None:
    rows = rows_of(made, "synthetic_solution")
    for row in rows:
        assert quantities.last_number(row["solution"]) == Fraction(row["answer"])
        assert "<<" not in row["solution"] and "####" not in row["solution"]
        sums = quantities.PATTERN.findall(row["solution"])
        assert sums, row
        for left, operator, right, result in calculations(row["solution"]):
            assert Fraction(result) == {
                "+": left + right, "-": left - right, "*": left * right, "/": left / (right or 1),
            }[operator]  # fmt: skip
    report = report_of(made, "synthetic_solution")
    assert report["accepted"] == len(rows)
    assert report["rows_in"] == report["accepted"] + sum(report["rows_lost"].values())


def calculations(text: str) -> list[tuple[Fraction, str, Fraction, Fraction]]:
    import re

    number = r"(\d+(?:\.\d+)?)"
    found = re.findall(rf"{number} ([-+*/]) {number} = {number}", text)
    return [(Fraction(a), sign, Fraction(b), Fraction(c)) for a, sign, b, c in found]


def test_the_rows_are_a_source_of_a_mixture(made: Path) -> None:
    options = {"files": "rows.jsonl", "question": "question", "answer": "solution"}
    part = Part(source="synthetic", adapter="chat_rows", options=options)
    documents = list(read(part, made / "synthetic_solution"))
    rows = rows_of(made, "synthetic_solution")
    assert len(documents) == len(rows)
    assert isinstance(documents[0], Conversation)
    assert documents[0].messages[1].content == rows[0]["solution"]


def test_the_same_bytes_elsewhere(made: Path, tmp_path: Path) -> None:
    """Another process with another hash seed, time zone and locale."""
    write_source(tmp_path, SOURCE, FOREIGN)
    script = f"import sys; from pathlib import Path; from synthesis_helpers import run_all; run_all(Path({str(tmp_path)!r}))"
    environment = {
        **os.environ, "PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo", "LC_ALL": "C",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)]),
    }  # fmt: skip
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=120)
    assert bytes_of(tmp_path) == bytes_of(made)


def test_test_items_are_never_used(tmp_path: Path) -> None:
    """A problem that holds a held-out item is lost; when all do, that is an error."""
    heldout = [{"key": "x", "question": SOURCE[5]["question"], "answer": "14"}]
    write_source(tmp_path, SOURCE[4:7], heldout)
    synthetic_abstract.run(job_of("synthetic_abstract", tmp_path))
    assert report_of(tmp_path, "synthetic_abstract")["rows_lost"] == {"held out: test": 1}
    assert [row["key"] for row in rows_of(tmp_path, "synthetic_abstract")] == [
        "problems/rows.jsonl#1", "problems/rows.jsonl#3",
    ]  # fmt: skip
    other = tmp_path / "other"
    write_source(other, SOURCE[5:6], heldout)
    with pytest.raises(VerificationError, match=r"none of 1 rows is left .*held out: test"):
        synthetic_abstract.run(job_of("synthetic_abstract", other))


def test_a_new_problem_that_is_a_test_item_is_rejected(made: Path, tmp_path: Path) -> None:
    taken = rows_of(made, "synthetic_values")[0]
    heldout = [{"key": "x", "question": taken["question"], "answer": taken["answer"]}]
    write_source(tmp_path, SOURCE[:1], heldout)
    run_all(tmp_path)
    questions = [row["question"] for row in rows_of(tmp_path, "synthetic_solution")]
    assert questions and taken["question"] not in questions
    assert report_of(tmp_path, "synthetic_values")["rejected_replies"]["held out: test"] == 1


@pytest.mark.parametrize(
    ("question", "solution", "stage", "reason"),
    [
        ("How many?", "Six.\n#### 6", "synthetic_abstract", "no number"),
        ("What are 3 {braces}?", "<<3*1=3>>3\n#### 3", "synthetic_abstract", "template and parameters differ"),
        ("What is " + "9" * 5000 + " + 1?", "1\n#### 1", "synthetic_abstract", "too long"),
        ("What is 3 + 4?", "It is 7.\n#### 7", "synthetic_program", "no function solve"),
        ("What is 3 + 4?", "<<3*4=12>>12\n#### 7", "synthetic_program", "program gives another answer"),
        ("What is 3 / 0?", "<<3/0=7>>7\n#### 7", "synthetic_program", "program failed: ZeroDivisionError"),
        ("What is 3?", "<<3**9**9**9=7>>7\n#### 7", "synthetic_program", "program refused: a number of more than 4096 bits"),
    ],
)  # fmt: skip
def test_bad_problems_are_counted_by_reason(
    tmp_path: Path, question: str, solution: str, stage: str, reason: str
) -> None:
    good = SOURCE[0]
    write_source(tmp_path, [good, {"question": question, "answer": solution}], FOREIGN)
    for name, (module, _, _) in STAGES.items():
        module.run(job_of(name, tmp_path))
        if name == stage:
            break
    assert report_of(tmp_path, stage)["rows_lost"] == {reason: 1}
    assert len(rows_of(tmp_path, stage)) == 1


def test_a_conversation_of_another_form_is_refused(tmp_path: Path) -> None:
    write_source(tmp_path, SOURCE[:1], FOREIGN)
    job = job_of("synthetic_abstract", tmp_path)
    part = Part(source="problems", adapter="problem_rows", options=PART.options)
    settings = {**job.settings, "problems": (part,)}
    with pytest.raises(BadUse, match="one turn of each"):
        synthetic_abstract.run(job.__class__(**{**vars(job), "settings": settings}))


def test_nothing_is_made_when_no_mixture_wants_it(tmp_path: Path) -> None:
    run_all(tmp_path, teacher=None)
    for stage in STAGES:
        assert report_of(tmp_path, stage) == {"used": False}
        assert rows_of(tmp_path, stage) == []
