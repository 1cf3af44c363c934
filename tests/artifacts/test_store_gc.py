"""Removal of what nothing reaches, also while others run."""

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from instella.artifacts import journal
from instella.artifacts.identity import PACKAGE_FOLDER, identity_key
from instella.artifacts.job import Job
from instella.artifacts.store import Store
from instella.artifacts.store_gc import Rubbish, collect, reached_by, recipe_folders
from instella.artifacts.store_verify import verify
from instella.errors import VerificationError

from .toy import Cut, Project, make_graph, words


def gc(project: Project, spared: float = 0.0, dry: bool = False) -> list[Rubbish]:
    reach = partial(reached_by, [project.folder / "results"], project.store)
    return collect(project.store, reach, spared, dry)


def kinds(items: list[Rubbish]) -> list[str]:
    return sorted({item.kind for item in items})


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def changed(tmp_path: Path) -> Project:
    """A finished run whose stages were computed with another setting before."""
    project = Project(tmp_path, make_graph(cut=Cut(length=4)))
    project.run_all()
    (project.package / "helper.py").write_text("FACTOR = 5\n")
    project.graph = make_graph()
    project.run_all()
    return project


def test_a_sound_run_loses_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.run_all()
    before = tree(tmp_path)
    assert gc(project) == []
    assert tree(tmp_path) == before


def test_what_an_earlier_setting_made_goes(changed: Project) -> None:
    before = tree(changed.folder)
    planned = gc(changed, dry=True)
    assert tree(changed.folder) == before, "a dry run removes nothing"
    assert kinds(planned) == ["code closure", "object", "record", "stamp"]
    assert gc(changed) == planned and gc(changed) == []
    gone = {path for path in before if not Path(path).exists()}
    assert gone == {str(item.path) for item in planned}
    assert all(path.startswith(str(changed.store.root)) for path in gone)
    changed.computed.clear()
    shutil.rmtree(changed.results)
    changed.run_all()
    assert changed.computed == [], "what was reached is still there"


def test_the_young_is_spared(changed: Project) -> None:
    assert gc(changed, spared=3600.0) == []


def test_a_killed_stage_keeps_its_work_until_it_ends(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.run("source")

    def die(job: Job) -> None:
        (job.scratch / "checkpoint").write_text("5 days")
        raise KeyboardInterrupt

    for graph in (make_graph(cut=Cut(length=4)), make_graph()):
        project.graph = graph
        with pytest.raises(KeyboardInterrupt):
            project.run("words", die)
    (left,) = gc(project)
    assert left.kind == "work folder" and left.size == len("5 days")
    (work,) = (project.store.root / "work").iterdir()
    assert journal.running_keys(project.results) == {"words": work.name}

    def resume(job: Job) -> None:
        assert (job.scratch / "checkpoint").read_text() == "5 days"
        words(job)

    project.run("words", resume)
    assert journal.running_keys(project.results) == {}
    assert list((project.store.root / "work").iterdir()) == []


def test_work_of_a_finished_identity_goes(tmp_path: Path) -> None:
    """As a kill leaves it between the record and the end."""
    project = Project(tmp_path)
    key = identity_key(project.run("source").identity)
    work = project.store.root / "work" / key / "scratch"
    work.mkdir(parents=True)
    journal.running_file(project.results, "source").write_text(f"{key}\n")
    assert [item.kind for item in gc(project)] == ["work folder"]
    work.mkdir(parents=True)
    project.run("source")
    assert not work.parent.exists(), "running the stage removes it too"


def test_work_of_a_running_process_stays(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.run("source")
    work = project.store.root / "work" / ("ab" * 32)
    work.mkdir(parents=True)
    with project.store.lock(work.name):
        assert gc(project) == []
    assert [item.path for item in gc(project)] == [work]


def test_left_over_files_go(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.run("source")
    left = [
        project.store.root / name
        for name in ("quarantine/ab", "tmp/1-ab", "actions/.x.1-ab", "code/.x.1-ab")
    ]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert sorted(item.path for item in gc(project)) == sorted(left)


def test_a_damaged_manifest_stops_everything(changed: Project) -> None:
    changed.workspace.manifest("words").write_text("{")
    before = tree(changed.folder)
    with pytest.raises(VerificationError, match=r"words/manifest\.json"):
        gc(changed)
    assert tree(changed.folder) == before


def test_a_recipes_folder_may_be_given_itself(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.run_all()
    assert recipe_folders(project.results) == recipe_folders(tmp_path / "results")
    assert recipe_folders(tmp_path / "nowhere") == []


def test_a_store_knows_its_users(tmp_path: Path) -> None:
    project = Project(tmp_path / "one")
    project.run("source")
    assert project.store.users() == [project.results]
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    copy = Project(tmp_path / "two")
    assert copy.store.users() == []
    shutil.rmtree(project.results)
    assert project.store.users() == []


def test_a_result_without_its_manifest_stays(tmp_path: Path) -> None:
    """A workflow engine removes the manifest before it runs a stage again."""
    project = Project(tmp_path)
    project.run_all()
    project.workspace.manifest("words").unlink()
    assert gc(project) == []
    project.computed.clear()
    project.run("words")
    assert project.computed == []


def worker(folder: Path, number: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.artifacts.gc_worker", str(folder), str(number)]
    return subprocess.Popen(
        command,
        cwd=PACKAGE_FOLDER.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_removal_in_a_loop_while_others_run(tmp_path: Path) -> None:
    """Three processes run, change, delete and rerun the graph; one removes all the while."""
    workers = [worker(tmp_path, number) for number in range(3)]
    results = [tmp_path / f"results{number}" for number in range(3)]
    store, removed = Store(tmp_path / "store"), 0
    try:
        while any(process.poll() is None for process in workers):
            removed += len(collect(store, partial(reached_by, results, store), 0.0))
    finally:
        for process in workers:
            process.kill()
        said = [process.communicate() for process in workers]
    failed = [
        err[-3000:] for process, (_, err) in zip(workers, said, strict=True) if process.returncode
    ]
    assert not failed, "\n".join(failed)
    assert removed > 20
    contents = {out.splitlines()[-1] for out, _ in said}
    assert len(contents) == 1, said
    reached = reached_by(results, store)
    present = {path.name for path in (tmp_path / "store" / "sha256").glob("*/*")}
    assert reached.objects <= present
    assert all(store.action(key) is not None for key in reached.records)
    assert verify(store)[0] == []


@pytest.mark.parametrize("suffix", [".jsonl", journal.RUNNING])
def test_a_journal_names_no_file_elsewhere(tmp_path: Path, suffix: str) -> None:
    """A key that leads out of the store: somebody's file is neither read nor moved."""
    project = Project(tmp_path / "project")
    project.run_all()
    victim = tmp_path / "victim"
    victim.write_text("somebody's")
    key = os.path.relpath(victim, project.store.root / "actions")
    place = project.results / journal.FOLDER / f"total{suffix}"
    place.write_text(f'{{"identity":"{key}"}}\n' if suffix == ".jsonl" else key)
    (project.results / "total" / "manifest.json").unlink()
    gc(project, dry=True)
    gc(project)
    assert victim.read_text() == "somebody's"
    assert not list((project.store.root / "quarantine").glob("*"))


PIPES = ("results/toy/journal/total.running", "results/toy/total/manifest.json", "store/results/a")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    project = Project(tmp_path)
    project.run_all()
    path = project.folder / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(VerificationError, match="plain file"):
        project.store.users()
        gc(project)
    assert sorted(tmp_path.rglob("*")) == before, "nothing is removed"


def test_a_garbled_journal_stops_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.run_all()
    folder = project.results / journal.FOLDER
    (folder / "total.jsonl").write_bytes(b"[" * 100_000 + b"\n" + b"9" * 5000 + b"\n\xff\n")
    (folder / "words.running").write_bytes(b"\xff/../\n")
    assert gc(project) == []
