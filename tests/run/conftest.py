"""Whole runs of the recipes, each made once and shared; tests that alter one copy it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_helpers import PLANTED, Run, copy_tree

from instella.artifacts.journal import host_facts
from instella.prove.copies import PROJECT, clone
from instella.prove.processes import Finished, instella, kit

NANO = "recipes/nano.yaml"
NANO_TIMEOUT = 900.0
TINY_TIMEOUT = 2700.0
PROOF_TIMEOUT = 2700.0

Proof = tuple[Finished, dict[str, Any]]


def _report(name: str, done: Finished) -> None:
    print(
        f"\n{name}: {done.wall:.0f} s, {done.cpu:.0f} s of CPU time, peak memory "
        f"{done.peak_tree / 2**20:.0f} MiB together, {done.peak_process / 2**20:.0f} MiB in one, "
        f"CPU {host_facts()['cpu']}"
    )


@pytest.fixture(scope="session")
def nano_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """nano on two cores in a folder whose name has blanks and other letters, and with tokens in
    its environment; never altered."""
    run = Run(clone(tmp_path_factory.mktemp("one") / "erster Läuf 第一", NANO), "nano")
    done = kit(run.folder, "--cores", "2", timeout=NANO_TIMEOUT, extra=PLANTED)
    assert done.code == 0, done.err
    _report("nano, 2 cores", done)
    return run


@pytest.fixture(scope="session")
def quick_proof(nano_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Proof:
    """What ``instella prove --quick`` said and made; after a shared run, which fetches."""
    folder = tmp_path_factory.mktemp("proof")
    options = ["--quick", "--json", str(folder / "proof.json"), "--keep", str(folder / "rows")]
    done = instella(PROJECT, "prove", *options, timeout=PROOF_TIMEOUT)
    print(f"\n{done.out}\n{done.err}")
    return done, json.loads((folder / "proof.json").read_bytes())


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Finished]:
    """The default recipe, as shipped, with what its command printed; never altered."""
    run = Run(clone(tmp_path_factory.mktemp("tiny") / "kit"), "tiny")
    done = kit(run.folder, timeout=TINY_TIMEOUT)
    assert done.code == 0, done.err
    _report("tiny", done)
    return run, done


@pytest.fixture
def nano_copy(nano_run: Run, tmp_path: Path) -> Iterator[Run]:
    """A copy of the finished nano run that a test may alter; hard links stay links."""
    yield Run(copy_tree(nano_run.folder, tmp_path / "copy of nano", "-a"), "nano")
