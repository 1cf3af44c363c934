"""Commands end with all that they started, and nobody's variables steer them."""

import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from instella.prove.copies import copy_project, share_archives
from instella.prove.processes import environment, kill_tree, run, runs, start


def _alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and runs(psutil.Process(pid))


def _pid(path: Path) -> int:
    deadline = time.monotonic() + 30
    while not (path.is_file() and path.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(path.read_text())


def test_a_command_is_measured(tmp_path: Path) -> None:
    done = run(["sh", "-c", "echo out; echo err >&2; umask; exit 3"], tmp_path, 30, umask=0o027)
    assert (done.code, done.out, done.err) == (3, "out\n0027\n", "err\n")


def test_too_long_ends_everything(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="not done after 1"):
        run(["sh", "-c", "sleep 300 & echo $! > child; wait"], tmp_path, 1)
    assert not _alive(_pid(tmp_path / "child"))


def test_orphans_end_too(tmp_path: Path) -> None:
    """A process whose parent is gone is still one of the session."""
    script = "(sleep 300 & echo $! > child); sleep 300"
    process = start(["sh", "-c", script], tmp_path, subprocess.DEVNULL, subprocess.DEVNULL)
    orphan = _pid(tmp_path / "child")
    assert _alive(orphan)
    kill_tree(process)
    deadline = time.monotonic() + 10
    while _alive(orphan) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _alive(orphan)


def test_variables_that_steer_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "PYTHONPATH", "ONEDNN_MAX_CPU_ISA", "SNAKEMAKE_PROFILE"):
        monkeypatch.setenv(name, "1")
    found = environment({"OMP_NUM_THREADS": "7"})
    assert found["PATH"] == os.environ["PATH"]
    assert found["OMP_NUM_THREADS"] == "7"
    assert not {"PYTHONPATH", "ONEDNN_MAX_CPU_ISA", "SNAKEMAKE_PROFILE"} & set(found)


def test_a_copy_has_the_project_and_nothing_it_made(tmp_path: Path) -> None:
    target = tmp_path / "a b" / "ü"
    copy_project(target, "recipes/nano.yaml", {"PYTHONHASHSEED": "7"})
    assert (target / "Snakefile").is_file()
    left_out = (".git", "results", "store", "downloads", ".snakemake")
    assert not [name for name in left_out if (target / name).exists()]
    assert "recipe: recipes/nano.yaml\n" in (target / "config.yaml").read_text()
    code = "import os; print(os.environ['PYTHONHASHSEED'])"
    assert run([".venv/bin/python", "-c", code], target, 60).out == "7\n"


def test_archives_are_shared_without_locks(tmp_path: Path) -> None:
    source, target = tmp_path / "one", tmp_path / "two"
    source.mkdir()
    for name in ("a.whl", "a.whl.lock"):
        (source / name).write_text(name)
    share_archives(source, target)
    assert [path.name for path in target.iterdir()] == ["a.whl"]
    assert (target / "a.whl").samefile(source / "a.whl")
