"""Small sources, and jobs over them."""

import io
import json
from pathlib import Path
from typing import Any

from instella.artifacts.job import Job
from instella.canonical import sha256_file
from instella.progress import Reporter
from instella.recipe.settings import Part

SUFFIX = r"Let's think step by step and output the final answer within \boxed{}."
HELD = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"

TEXTS = [
    {"text": f"Text {n}: the spider {n % 7} has eight legs,\r\nthe cafe\u0301 {n}."}
    for n in range(60)
]
CHATS = [
    [("user", "How many legs?"), ("assistant", "Eight legs.")],
    [("system", "Be short."), ("user", " What is 1 + 1? "), ("assistant", "2"), ("user", "Thanks")],
    [("user", "only a question")],
    [("user", "long " * 60), ("assistant", "cut away")],
    [("user", "q"), ("user", "q again"), ("assistant", "")],
    [("user", "Count."), ("assistant", f"{HELD}.")],
    [("user", "Say it."), ("assistant", "word " * 60)],
]
PAIRS = [
    ("How many legs?", "Eight.", "Six."),
    ("Same?", " Yes.", "Yes. "),
    ("", "a", "b"),
    ("Long?", "short", "long " * 60),
    ("Count.", f"{HELD}", "no"),
    ("Silence?", "", "noise"),
]
PROBLEMS = [
    ("1 + 1?", "2"),
    ("long " * 60, "3"),
    (HELD, "4"),
    ("5 + 5?", " "),
    (" ", "6"),
    ("3 + 4?", "7"),
]


def job(
    tmp_path: Path,
    name: str,
    settings: dict[str, Any],
    inputs: dict[str, Path],
    workers: int = 1,
) -> Job:
    for folder in ("output", "scratch"):
        (tmp_path / name / folder).mkdir(parents=True)
    return Job(
        stage=name,
        settings={"ngram": 13, "prompt_suffix": SUFFIX, **settings},
        inputs=inputs,
        output=tmp_path / name / "output",
        scratch=tmp_path / name / "scratch",
        downloads=tmp_path,
        recipe_folder=tmp_path,
        numerics="portable-x86",
        ranks=1,
        report=Reporter(name, stream=io.StringIO()),
        workers=workers,
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def report_of(run: Job) -> dict[str, Any]:
    return json.loads((run.output / "report.json").read_bytes())


def digests(folder: Path) -> dict[str, str]:
    return {path.name: sha256_file(path) for path in sorted(folder.iterdir())}


def part(source: str, adapter: str, **fields: Any) -> Part:
    return Part(source=source, adapter=adapter, **fields)
