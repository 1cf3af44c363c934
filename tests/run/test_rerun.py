"""A finished run is run again: nothing is computed, whatever happened to times and places."""

import os
import shutil
from pathlib import Path

import pytest
from run_helpers import Run, assert_nothing_runs, copy_tree

from instella.prove.finished import damaged_objects

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def test_second_run_does_nothing(nano_copy: Run) -> None:
    assert_nothing_runs(nano_copy)


def test_touched_files_rerun_nothing(nano_copy: Run) -> None:
    for path in nano_copy.folder.rglob("*"):
        if not path.is_symlink():
            os.utime(path)
    assert_nothing_runs(nano_copy)


def test_plain_copy_reruns_nothing(nano_run: Run, tmp_path: Path) -> None:
    """``cp -r`` gives every file a new time and breaks the links into the store."""
    copy = Run(copy_tree(nano_run.folder, tmp_path / "plain copy", "-r"), "nano")
    assert_nothing_runs(copy)


def test_moved_folder_reruns_nothing(nano_copy: Run, tmp_path: Path) -> None:
    target = tmp_path / "else where" / "ünd anders"
    target.parent.mkdir()
    shutil.move(nano_copy.folder, target)
    assert_nothing_runs(Run(target, "nano"))


@pytest.mark.parametrize("module", ["canonical.py", "training/loop.py"])
def test_comment_reruns_nothing(nano_copy: Run, module: str) -> None:
    with (nano_copy.folder / "instella" / module).open("a", encoding="utf-8") as file:
        file.write("# A remark that changes nothing.\n")
    assert_nothing_runs(nano_copy)


def test_lost_results_come_back_from_the_store(nano_run: Run, nano_copy: Run) -> None:
    shutil.rmtree(nano_copy.folder / "results")
    shutil.rmtree(nano_copy.folder / ".snakemake")
    _, outcomes = nano_copy.run()
    assert outcomes == {stage: ["hit"] for stage in nano_copy.graph()}
    assert nano_copy.manifest_bytes() == nano_run.manifest_bytes()
    assert nano_copy.root() == nano_run.root()
    assert damaged_objects(nano_copy.store) == []
