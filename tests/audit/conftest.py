"""Runs that the audit's tests share, each made once; tests that alter one copy it."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from audit_runs import PRETRAIN, TRAINING, graph_of, make_run

from instella.artifacts.identity import Toolchain
from instella.artifacts.store import Store
from instella.audit.verify import Findings, verify
from instella.recipe.graph import Stage


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results folder of the small run; never altered."""
    return make_run(tmp_path_factory.mktemp("toy") / "run")


@pytest.fixture(scope="session")
def kept_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Stage]]:
    """Results folder and graph of a run whose artifact keeps checkpoints; never altered."""
    graph = graph_of(replace(PRETRAIN, training=replace(TRAINING, keep_checkpoints_every=3)))
    return make_run(tmp_path_factory.mktemp("kept") / "run", graph), graph


@pytest.fixture
def toy_copy(toy_run: Path, tmp_path: Path) -> Path:
    """Results folder of a copy that a test may alter; views are links to the copied store."""
    base = toy_run.parent.parent
    target = tmp_path / "run"
    shutil.copytree(base / "store", target / "store")
    shutil.copytree(base / "results", target / "results")
    return target / "results" / "toy"


@pytest.fixture
def check() -> Callable[[Path, dict[str, Stage]], Findings]:
    """The whole audit of a results folder against this tree."""

    def audited(results: Path, graph: dict[str, Stage]) -> Findings:
        store = Store(results.parent.parent / "store")
        return verify(results, store, graph, Toolchain.here("portable-x86"))

    return audited
