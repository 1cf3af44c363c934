"""What stands in a run's way, and what a run prints: one line a fault, one line a stage."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import HELDOUT, STAGE, Tree, copy_tree

QUIET = ("--quiet", "rules", "reason", "host", "--cores", "2")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    made = copy_tree(tmp_path_factory.mktemp("obstacles") / "kit")
    for path in (made.folder / "instella/stages").glob("*.py"):
        if path.name != "__init__.py":
            path.write_text(STAGE, encoding="utf-8")
    return made


def a_file(path: Path) -> None:
    path.write_text("x")


def a_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("name", "make"),
    [("sft", a_file), ("logs", a_file), ("root", a_link), ("table.md", Path.mkdir)],
)
def test_an_obstacle_is_one_line(tree: Tree, name: str, make: Callable[[Path], None]) -> None:
    path = tree.folder / "results/tiny" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)
    try:
        done = tree.snakemake(*QUIET)
    finally:
        path.rmdir() if path.is_dir() else path.unlink()
    assert done.returncode == 1
    assert done.stdout.count("\n") == 1, done.stdout
    assert done.stdout.startswith(f"Error: results/tiny/{name}: a ")
    assert "stands where a f" in done.stdout


def test_read_only_results_are_one_line(tree: Tree) -> None:
    """On a file system of its own, which not even root can write to."""
    private = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "-r"]
    results = tree.folder / "results"
    results.mkdir(exist_ok=True)
    probe = subprocess.run([*private, "mount", "-t", "tmpfs", "tmpfs", results], check=False)
    if probe.returncode:
        pytest.skip("this machine lets nobody mount a file system, so none can be read-only")
    script = 'mount -t tmpfs -o ro tmpfs results && exec "$@"'
    command = [
        *private,
        "sh",
        "-c",
        script,
        "sh",
        sys.executable,
        "-m",
        "snakemake",
        *QUIET,
        HELDOUT,
    ]
    done = subprocess.run(
        command, cwd=tree.folder, env={**os.environ, "PYTHONPATH": ""}, text=True,
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error")]
    assert line.startswith("Error: results/tiny: cannot be made (Read-only file system); change")
    assert done.stderr.splitlines()[-1] == line and "Traceback" not in done.stderr
    assert not list((tree.folder / ".snakemake/locks").glob("*"))


def test_a_quiet_run_says_a_line_a_stage_and_how_far_it_is(tree: Tree) -> None:
    done = tree.snakemake(*QUIET, HELDOUT)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert sum(": computed, " in line for line in lines) == 5
    assert "5 of 5 steps (100%) done" in lines
    assert "Made what was asked for, in results/tiny." in lines
    said = [
        word for word in ("rule source", "jobid", "Select jobs", "Execute ") if word in done.stdout
    ]
    assert said == [] and len(lines) < 25, done.stdout
    full = tree.snakemake("--quiet", "host", "--cores", "2", "--forcerun", "heldout", "--", HELDOUT)
    assert "rule heldout:" in full.stdout and "Select jobs" in full.stdout


def test_a_failed_stage_names_itself_and_its_log(tree: Tree) -> None:
    path = tree.folder / "instella/stages/heldout.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("def run(job):", "def run(job):\n    raise OSError('broken')"))
    try:
        done = tree.snakemake(*QUIET, HELDOUT)
    finally:
        path.write_text(text, encoding="utf-8")
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("instella: ")]
    log = "results/tiny/logs/heldout.log"
    assert line == f"instella: OSError: broken; rerun with --debug for the place; log: {log}"
    assert "Traceback" in (tree.folder / log).read_text(encoding="utf-8")
