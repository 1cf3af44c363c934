"""SIGKILL before every single change of the file system: nothing partial, rerun completes."""

import os
import shutil
from pathlib import Path

import pytest

from instella.artifacts import stamps
from instella.artifacts.check import check_results
from instella.artifacts.manifest import NAME, Entry, read_manifest
from instella.artifacts.store import examine_file, plain_files

from .toy import Cut, Project, die_at, in_child, make_graph


@pytest.fixture(autouse=True)
def fast_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that fsync would have kept; a power cut is not tested."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(stamps, "SETTLE_NS", 0)


def assert_nothing_partial(project: Project) -> None:
    for path in (project.store.root / "sha256").glob("*/*"):
        assert examine_file(path, Entry(path.name, path.stat().st_size)) is None
    for path in (project.store.root / "actions").glob("[0-9a-f]*"):
        manifest = read_manifest(path)
        assert project.store.examine_all(manifest.files.values()) == {}
    for path in project.results.glob(f"*/{NAME}"):
        for name, entry in read_manifest(path).files.items():
            assert examine_file(path.parent / name, entry) is None


def run_until_done(
    project: Project, template: Path, stage: str, reference: dict[str, bytes]
) -> int:
    """Kill at the first change, the second, and so on; the number of kills."""
    for call in range(1, 500):
        shutil.rmtree(project.folder)
        shutil.copytree(template, project.folder)

        def attempt(call: int = call) -> None:
            die_at(call)
            project.run(stage)

        status = in_child(attempt)
        assert_nothing_partial(project)
        project.run(stage)
        assert project.workspace.manifest(stage).read_bytes() == reference[stage]
        assert_view(project, stage)
        assert list((project.store.root / "work").iterdir()) == []
        if status == 0:
            return call - 1
        assert status == -9
    raise AssertionError("the stage never ended")


def assert_view(project: Project, stage: str) -> None:
    folder = project.results / stage
    files = read_manifest(folder / NAME).files
    assert set(plain_files(folder)) == {*files, NAME}
    for name, entry in files.items():
        assert examine_file(folder / name, entry) is None


def test_kill_while_computing(tmp_path: Path) -> None:
    project, template = Project(tmp_path / "project"), tmp_path / "template"
    project.run("source")
    shutil.copytree(project.folder, template)
    project.run("words")
    assert run_until_done(project, template, "words", project.manifest_bytes()) > 30


def test_kill_while_replacing_an_older_result(tmp_path: Path) -> None:
    """A hit over a view of another result: never a manifest beside files of the other."""
    project, template = Project(tmp_path / "project"), tmp_path / "template"
    project.run_all()
    project.graph = make_graph(cut=Cut(length=3))
    project.run("words")
    reference = project.manifest_bytes()
    project.graph = make_graph()
    project.run("words")
    shutil.copytree(project.folder, template, copy_function=os.link)
    project.graph = make_graph(cut=Cut(length=3))
    assert run_until_done(project, template, "words", reference) > 10


def test_kill_while_setting_damage_aside(tmp_path: Path) -> None:
    project, template = Project(tmp_path / "project"), tmp_path / "template"
    project.run("source")
    stored = project.store.object_path(project.run("words").files["words.txt"].sha256)
    stored.chmod(0o644)
    stored.write_text("damaged!!")
    shutil.copytree(project.folder, template)
    for call in range(1, 100):
        shutil.rmtree(project.folder)
        shutil.copytree(template, project.folder)

        def attempt(call: int = call) -> None:
            die_at(call)
            project.run("words")

        status = in_child(attempt)
        project.run("words")
        assert stored.read_bytes() == b"the quick"
        assert check_results(project.results, project.store, project.graph) == []
        if status == 0:
            return
    raise AssertionError("the stage never ended")
