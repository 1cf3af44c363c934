"""Jobs of the four stages in a folder, one after another."""

import io
from pathlib import Path
from typing import Any

from instella.artifacts.job import Job
from instella.canonical import read_json, read_jsonl, write_jsonl
from instella.progress import Reporter
from instella.recipe.settings import Part, Step, Teacher, ValueStep
from instella.stages import (
    synthetic_abstract,
    synthetic_program,
    synthetic_solution,
    synthetic_values,
)

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = ROOT / "recipes" / "word_problems.jsonl"
STAGES = {
    "synthetic_abstract": (synthetic_abstract, "abstract", ()),
    "synthetic_program": (synthetic_program, "program", ("abstract",)),
    "synthetic_values": (synthetic_values, "values", ("program",)),
    "synthetic_solution": (synthetic_solution, "solution", ("values", "program")),
}
STEPS = {
    "abstract": Step(temperature=0.7, attempts=2),
    "program": Step(temperature=0.7, attempts=3),
    "values": ValueStep(sets=3, rounds=2, wanted=4, temperature=0.7, reword_temperature=1e-5),
    "solution": Step(temperature=0.7, attempts=2),
}
RULES = Teacher(kind="rules")
PART = Part(
    source="problems",
    adapter="chat_rows",
    options={"question": "question", "answer": "answer"},
)


def write_source(folder: Path, rows: list[dict[str, str]], heldout: list[dict[str, str]]) -> None:
    """Sources of a run: problems, and one held-out set ``test`` of kind problem."""
    (folder / "source").mkdir(parents=True)
    (folder / "heldout").mkdir()
    write_jsonl(folder / "source" / "rows.jsonl", rows)
    write_jsonl(folder / "heldout" / "test.jsonl", heldout)


def job_of(stage: str, folder: Path, teacher: Teacher | None = RULES, **changes: Any) -> Job:
    """The stage's job; earlier stages lie under their names in ``folder``."""
    _, step, earlier = STAGES[stage]
    settings: dict[str, Any] = {"teacher": teacher}
    if teacher is not None:
        settings |= {"seed": 6, "step": STEPS[step], "ngram": 13, "problems": (PART,)}
    output, scratch = folder / stage, folder / f"{stage}.scratch"
    output.mkdir(parents=True)
    scratch.mkdir(exist_ok=True)
    values: dict[str, Any] = {
        "stage": stage,
        "settings": settings,
        "inputs": {
            "source_problems": folder / "source",
            "heldout": folder / "heldout",
            **{name: folder / f"synthetic_{name}" for name in earlier},
        },
        "output": output,
        "scratch": scratch,
        "downloads": folder,
        "recipe_folder": folder,
        "numerics": "portable-x86",
        "ranks": 1,
        "report": Reporter(stage, stream=io.StringIO()),
    }
    return Job(**{**values, **changes})


def run_all(folder: Path, teacher: Teacher | None = RULES) -> None:
    """All four stages."""
    for stage, (module, _, _) in STAGES.items():
        module.run(job_of(stage, folder, teacher))


def rows_of(folder: Path, stage: str) -> list[dict[str, Any]]:
    return read_jsonl(folder / stage / "rows.jsonl")


def report_of(folder: Path, stage: str) -> dict[str, Any]:
    report: dict[str, Any] = read_json(folder / stage / "report.json")
    return report


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file of the four artifacts."""
    files = (path for stage in STAGES for path in sorted((folder / stage).iterdir()))
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in files}
