"""One process of a stage whose units are made by several; a program of its own.

    python shares_worker.py FOLDER whole|I/N|sources [unit|spool]

``unit`` and ``spool``: the process kills itself in the middle of its second unit, or before
the documents are all laid out.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from instella.artifacts.identity import Toolchain
from instella.artifacts.job import Job
from instella.artifacts.runner import make_units, run_stage
from instella.artifacts.store import Store
from instella.artifacts.workspace import Workspace
from instella.canonical import write_jsonl
from instella.data import mixture
from instella.data.chat import CHAT_TEMPLATE
from instella.data.tokenizer import train_bpe, write_folder
from instella.data.units import Units
from instella.recipe.graph import Stage
from instella.recipe.settings import Part, PretrainData, Tokenizer
from instella.stages import tokens_text

ROWS = [{"text": f"Document {n} has {n % 9} legs. " * (n % 30)} for n in range(250)]


def source(job: Job) -> None:
    write_jsonl(job.output / "rows.jsonl", ROWS)


def heldout(job: Job) -> None:
    write_jsonl(job.output / "exam.jsonl", [{"key": "1", "text": "Document 7 has 7 legs"}])


def tokenizer(job: Job) -> None:
    data = train_bpe([row["text"] for row in ROWS], Tokenizer(kind="bpe", vocab_size=300))
    write_folder(job.output, data, 0, 1, CHAT_TEMPLATE)


def tokens(job: Job) -> None:
    if job.units is None:
        tokens_text.run(job)
    else:
        tokens_text.tokenized(job).make_share(*job.units)


FUNCTIONS: dict[str, Callable[[Job], None]] = {
    "source_many": source,
    "heldout": heldout,
    "tokenizer": tokenizer,
    "tokens": tokens,
}


def graph(max_tokens: int | None) -> dict[str, Stage]:
    data = PretrainData(32, (Part("many", "text_rows", fraction=0.9),), max_tokens=max_tokens)
    roles = {"source_many": "source_many", "heldout": "heldout", "tokenizer": "tokenizer"}
    made = {name: Stage(name, name.partition("_")[0], {}, {}) for name in roles}
    settings: dict[str, Any] = {"data": data, "ngram": 4}
    return {**made, "tokens": Stage("tokens", "tokens_text", settings, roles)}


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(what: str) -> None:
    """Kill this process when it gets there."""
    if what == "spool":
        mixture._write_index = die  # type: ignore[assignment]
    elif what == "unit":
        real, calls = Units._fill, []

        def fill(units: Units, paths: list[Path], *rest: Any) -> None:
            calls.append(paths)
            if len(calls) == 2:
                paths[0].write_bytes(b"half of")
                die()
            real(units, paths, *rest)

        Units._fill = fill  # type: ignore[assignment, method-assign]


def main(folder: Path, what: str, death: str = "", max_tokens: str = "") -> None:
    mixture.SMALLEST_UNIT = 6000
    arm(death)
    stages = graph(int(max_tokens) if max_tokens else None)
    workspace = Workspace(folder / "results", Store(folder / "store"), folder, folder)
    toolchain = Toolchain.here("portable-x86", cache=folder / "store" / "cache")
    if what == "sources":
        for name in ("source_many", "heldout", "tokenizer"):
            run_stage(stages[name], stages, workspace, toolchain, FUNCTIONS[name])
    elif what == "whole":
        run_stage(stages["tokens"], stages, workspace, toolchain, tokens)
    else:
        share, shares = map(int, what.split("/"))
        make_units(stages["tokens"], stages, workspace, toolchain, tokens, (share, shares))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
