"""A small finished run of five kinds of stages, made once; tests that alter one copy it."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from instella.artifacts.identity import Toolchain
from instella.artifacts.job import Job
from instella.artifacts.lineage import sound_manifests
from instella.artifacts.runner import run_stage
from instella.artifacts.store import Store
from instella.artifacts.workspace import Workspace
from instella.canonical import write_bytes, write_json, write_jsonl
from instella.progress import Reporter
from instella.recipe.graph import Stage
from instella.statements import folder
from instella.statements.folder import Finished
from instella.statements.keys import Signer, local_signer, make_key

NAME = "toy"


def toy_graph(text: str = "a source") -> dict[str, Stage]:
    """source -> model -> evaluation -> table, and a tokenizer of the source."""
    return {
        "source_words": Stage("source_words", "source", {"text": text}, {}),
        "tokenizer": Stage("tokenizer", "tokenizer", {"size": 64}, {"source": "source_words"}),
        "sft": Stage(
            "sft", "pretrain", {"rate": 1e-05, "steps": 3}, {"tokens": "source_words", "tokenizer": "tokenizer"}
        ),
        "evaluate_sft": Stage(
            "evaluate_sft", "evaluate", {"sets": ["sums", "words"]}, {"model": "sft", "heldout": "source_words"}
        ),
        "results": Stage("results", "results", {}, {"sft": "evaluate_sft"}),
    }  # fmt: skip


def _source(job: Job) -> None:
    write_bytes(job.output / "rows.jsonl", job.settings["text"].encode() + b"\n")


def _tokenizer(job: Job) -> None:
    write_json(job.output / "tokenizer.json", {"vocabulary": ["a", "source"]})


def _sft(job: Job) -> None:
    write_json(job.output / "config.json", {"hidden_size": 8})
    write_bytes(job.output / "model.safetensors", bytes(range(256)) * 8)
    write_bytes(
        job.output / "tokenizer.json", (job.inputs["tokenizer"] / "tokenizer.json").read_bytes()
    )
    (job.output / "checkpoints" / "step-2").mkdir(parents=True)
    write_bytes(job.output / "checkpoints" / "step-2" / "model.safetensors", b"\0" * 64)
    write_jsonl(job.output / "steps.ledger.jsonl", ({"step": step} for step in range(1, 8)))


def _evaluate(job: Job) -> None:
    scores = {}
    for name in job.settings["sets"]:
        rows = [{"key": f"{name} {number}", "figures": {"right": [1, 2]}} for number in range(5)]
        write_jsonl(job.output / f"{name}.jsonl", rows)
        figure = {"value": 0.5, "low": 0.25, "high": 0.75, "items": 5}
        scores[name] = {"right": figure, "loss": figure}
    write_json(job.output / "scores.json", scores)


def _results(job: Job) -> None:
    claims = [{"about": "it learns", "met": True}, {"about": "it talks", "met": False}]
    write_json(job.output / "results.json", {"claims": claims})
    write_bytes(job.output / "table.md", b"# Results\n")


FUNCTIONS: dict[str, Callable[[Job], None]] = {
    "source": _source,
    "tokenizer": _tokenizer,
    "pretrain": _sft,
    "evaluate": _evaluate,
    "results": _results,
}


def make_run(base: Path, graph: dict[str, Stage]) -> Finished:
    """Run a graph in a folder."""
    space = Workspace(base / "results" / NAME, Store(base / "store"), base, base)
    tools = Toolchain.here("portable-x86")
    for stage in graph.values():
        report = Reporter(stage.name, stream=io.StringIO())
        run_stage(stage, graph, space, tools, FUNCTIONS[stage.kind], report)
    return reopened(base, graph)


def reopened(base: Path, graph: dict[str, Stage]) -> Finished:
    """The run that lies in a folder."""
    results = base / "results" / NAME
    manifests = sound_manifests(results, graph)
    return Finished(NAME, "1" * 64, graph, manifests, results, Store(base / "store"))


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    path = tmp_path_factory.mktemp("keys") / "key"
    make_key(path)
    return local_signer(path.read_bytes(), "key")


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory, signer: Signer) -> Finished:
    """The run, signed; never altered."""
    run = make_run(tmp_path_factory.mktemp("toy"), toy_graph())
    folder.write(run, folder.signed(folder.payloads(run), signer))
    return run


@pytest.fixture
def copy(toy: Finished, tmp_path: Path) -> Finished:
    """A copy that a test may alter."""
    base = tmp_path / "run"
    shutil.copytree(toy.results.parent.parent, base)
    return reopened(base, toy_graph())
