"""Whole runs of the recipes, each made once and shared; tests that alter one copy it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from run_helpers import Run, copy_tree

from benchmarks.harness import Finished, clone, kit

NANO = "recipes/nano.yaml"
NANO_TIMEOUT = 900.0
TINY_TIMEOUT = 2700.0


def _report(name: str, done: Finished) -> None:
    print(
        f"\n{name}: {done.wall:.0f} s, {done.cpu:.0f} s of CPU time, peak memory "
        f"{done.peak_tree / 2**20:.0f} MiB together, {done.peak_process / 2**20:.0f} MiB in one"
    )


@pytest.fixture(scope="session")
def nano_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """nano on two cores in a folder whose name has blanks and other letters; never altered."""
    run = Run(clone(tmp_path_factory.mktemp("one") / "erster Läuf 第一", NANO), "nano")
    done = kit(run.folder, "--cores", "2", timeout=NANO_TIMEOUT)
    assert done.code == 0, done.err
    _report("nano, 2 cores", done)
    return run


@pytest.fixture(scope="session")
def other_nano_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """nano once more: one core, two ranks, another folder, store, locale and time zone."""
    run = Run(clone(tmp_path_factory.mktemp("two") / "p", NANO), "nano")
    extra = {"LC_ALL": "C", "TZ": "Pacific/Kiritimati", "OMP_NUM_THREADS": "3"}
    options = ["--cores", "1", "--config", "ranks=2"]
    done = kit(run.folder, *options, timeout=NANO_TIMEOUT, extra=extra)
    assert done.code == 0, done.err
    _report("nano, 1 core, 2 ranks", done)
    return run


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
