"""Rehashing a whole store."""

import os
from pathlib import Path

import pytest

from instella.artifacts.check import check_results
from instella.artifacts.store_verify import verify

from .toy import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.run_all()
    return made


def stored(project: Project, stage: str, path: str) -> Path:
    key = {file.name: file for file in (project.store.root / "actions").iterdir()}
    manifest = next(
        item for item in map(project.store.action, key) if item is not None and item.stage == stage
    )
    return project.store.object_path(manifest.files[path].sha256)


def test_a_sound_store(project: Project) -> None:
    damage, count = verify(project.store)
    assert damage == [] and count == len(list((project.store.root / "sha256").glob("*/*")))


def test_a_bad_object_names_who_made_and_who_read_it(project: Project) -> None:
    path = stored(project, "words", "words.txt")
    path.chmod(0o644)
    path.write_bytes(b"THE QUICK")
    ((damage,), _) = verify(project.store)
    assert damage.path == path.relative_to(project.store.root).as_posix()
    assert (damage.makers, damage.readers) == (("words",), ("total",))
    assert str(damage).endswith("; of words; read by total")


def test_bytes_that_several_results_share(project: Project) -> None:
    stored(project, "source", "deep/licence.txt").unlink()
    ((damage,), _) = verify(project.store)
    assert damage.found == "nothing"
    assert (damage.makers, damage.readers) == (("side", "source", "words"), ("total",))


def test_rot_that_no_time_tells_is_found_by_the_next_run(project: Project) -> None:
    """A disk that forgets changes no time of the file, so its stamp goes on matching."""
    path = stored(project, "total", "total.txt")
    (stamp,) = (project.store.root / "verified").glob(f"*/{path.name}-*")
    path.chmod(0o644)
    path.write_bytes(b"[2, 9]")
    state = path.lstat()
    times = f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino}\n"
    stamp.write_text(times)
    assert check_results(project.results, project.store, project.graph) == []
    assert len(verify(project.store)[0]) == 1 and not stamp.exists()
    (fault,) = check_results(project.results, project.store, project.graph)
    assert (fault.stage, fault.kind) == ("total", "bytes")


def test_what_no_result_names(project: Project) -> None:
    folder = project.store.root / "sha256" / "ab"
    folder.mkdir(exist_ok=True)
    (folder / "named\nbadly").write_text("x")
    os.mkfifo(folder / ("ab" * 32))
    damage, _ = verify(project.store)
    assert sorted(item.found for item in damage)[1] == "something that is not a plain file"
    assert all("of no recorded result" in str(item) for item in damage)
    assert all("\n" not in str(item) for item in damage)


def test_bad_records(project: Project) -> None:
    first, second, third, fourth = sorted((project.store.root / "actions").iterdir())
    first.write_bytes(second.read_bytes())
    second.write_text("{")
    third.unlink()
    os.mkfifo(third)
    fourth.rename(project.folder / "record")
    fourth.symlink_to(project.folder / "record")
    damage, _ = verify(project.store)
    assert [item.path for item in damage[:4]] == [
        f"actions/{path.name}" for path in (first, second, third, fourth)
    ]
    assert damage[2].found.endswith("not a plain file, so not a manifest")
    assert damage[3].found == "no record: a link"
    assert damage[0].found == "the record of another identity"
    assert damage[1].found.startswith("no record: ")
    assert second.exists(), "nothing is set aside"
