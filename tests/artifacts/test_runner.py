"""Running stages: hits, early cutoff, damage, moves, two processes, full disks."""

import errno
import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from instella.artifacts.check import root
from instella.artifacts.disk_errors import cure_of
from instella.artifacts.identity import identity_key
from instella.artifacts.job import Job
from instella.artifacts.runner import run_stage
from instella.errors import Incomplete, KitError, VerificationError

from .toy import Cut, Project, in_child, make_graph, source, words


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def journal(project: Project, stage: str) -> list[Any]:
    text = (project.results / "journal" / f"{stage}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def damage(project: Project, stage: str, path: str, how: str) -> Path:
    """Alter, truncate or delete the object of a file, in the store and its view."""
    entry = project.run_all()[stage].files[path]
    stored = project.store.object_path(entry.sha256)
    if how == "deleted":
        stored.unlink()
        for view in project.results.rglob("*"):
            if (
                view.is_file()
                and view.name != "manifest.json"
                and view.stat().st_size == entry.size
            ):
                view.unlink()
        return stored
    before = stored.stat()
    stored.chmod(0o644)
    data = stored.read_bytes()
    stored.write_bytes(data[:-1] if how == "truncated" else bytes([data[0] ^ 1]) + data[1:])
    os.utime(stored, ns=(before.st_atime_ns, before.st_mtime_ns))
    return stored


def test_run_makes_views_and_manifests(project: Project) -> None:
    made = project.run_all()
    assert (project.results / "words" / "words.txt").read_text() == "the quick"
    assert stat.S_IMODE((project.results / "words" / "words.txt").stat().st_mode) == 0o444
    assert (project.results / "total" / "total.txt").read_text() == "[1, 9]"
    assert set(made["source"].files) == {"text.txt", "deep/licence.txt"}
    assert list((project.store.root / "work").iterdir()) == []
    assert [entry["outcome"] for entry in journal(project, "words")] == ["computed"]


def test_manifests_hold_no_place_host_or_time(project: Project) -> None:
    project.run_all()
    text = b"".join(project.manifest_bytes().values()).decode()
    assert str(project.folder) not in text
    assert os.uname().nodename not in text or len(os.uname().nodename) < 3
    assert time.strftime("%Y") not in json.dumps(
        [json.loads(data)["identity"]["settings"] for data in project.manifest_bytes().values()]
    )


def test_placement_never_enters_the_identity(project: Project, tmp_path: Path) -> None:
    first = project.run("source").to_bytes()
    project.workspace = replace(
        project.workspace, ranks=4, results=tmp_path / "elsewhere", downloads=tmp_path / "d"
    )
    project.computed.clear()
    assert project.run("source").to_bytes() == first and project.computed == []


def test_hit_restores_byte_identical_results(project: Project) -> None:
    project.run_all()
    before, first_root = project.manifest_bytes(), root(project.results, project.graph)
    shutil.rmtree(project.results)
    project.computed.clear()
    project.run_all()
    assert project.computed == [] and project.manifest_bytes() == before
    assert root(project.results, project.graph) == first_root
    assert (project.results / "source" / "deep" / "licence.txt").read_text() == "toy\n"
    assert [entry["outcome"] for entry in journal(project, "words")] == ["hit"]


def test_early_cutoff(project: Project) -> None:
    """Other settings that make the same bytes leave everything below alone."""
    before = project.run_all()
    project.graph = make_graph(label="another")
    project.computed.clear()
    after = project.run_all()
    assert project.computed == ["source"]
    assert after["source"].identity != before["source"].identity
    assert after["words"].to_bytes() == before["words"].to_bytes()


def test_changed_bytes_reach_exactly_those_below(project: Project) -> None:
    project.run_all()
    project.graph = make_graph(cut=Cut(length=4))
    project.computed.clear()
    project.run_all()
    assert project.computed == ["words", "total"]
    assert (project.results / "total" / "total.txt").read_text() == "[1, 4]"


def test_stale_files_of_an_earlier_result_leave_the_view(project: Project) -> None:
    def more(job: Job) -> None:
        source(job)
        (job.output / "extra.txt").write_text("x")

    project.run("source", more)
    assert (project.results / "source" / "extra.txt").exists()
    project.graph = make_graph(label="b")
    project.run("source")
    assert not (project.results / "source" / "extra.txt").exists()


def test_missing_input_is_incomplete(project: Project) -> None:
    with pytest.raises(Incomplete, match="words: needs source"):
        project.run("words")


@pytest.mark.parametrize("how", ["altered", "truncated", "deleted"])
def test_bad_input_is_named_and_made_again(project: Project, how: str) -> None:
    before = project.run_all()
    damage(project, "source", "text.txt", how)
    project.graph = make_graph(cut=Cut(length=5))
    with pytest.raises(VerificationError) as error:
        project.run("words")
    text = str(error.value)
    entry = before["source"].files["text.txt"]
    assert "text.txt of source" in text and entry.sha256 in text and "\n" not in text
    assert not project.workspace.manifest("source").exists()
    project.computed.clear()
    project.run_all()
    assert project.computed == ["source", "words", "total"]
    assert project.run("source").to_bytes() == before["source"].to_bytes()


@pytest.mark.parametrize("how", ["altered", "truncated", "deleted"])
def test_bad_own_result_is_computed_again(project: Project, how: str) -> None:
    before = project.run_all()
    damage(project, "words", "words.txt", how)
    project.computed.clear()
    assert project.run("words").to_bytes() == before["words"].to_bytes()
    assert project.computed == ["words"]
    assert (project.results / "words" / "words.txt").read_text() == "the quick"


def test_shared_bytes_are_made_again_by_their_first_maker(project: Project) -> None:
    """licence.txt is in source, words and side: only source has to rerun."""
    damage(project, "words", "licence.txt", "altered")
    with pytest.raises(VerificationError, match=r"deep/licence\.txt of source"):
        project.run("words")
    assert project.workspace.manifest("words").exists()
    project.computed.clear()
    project.run_all()
    assert project.computed == ["source"]


def test_lost_object_comes_back_from_a_view(project: Project) -> None:
    entry = project.run_all()["source"].files["text.txt"]
    project.store.object_path(entry.sha256).unlink()
    project.graph = make_graph(cut=Cut(length=5))
    project.computed.clear()
    project.run_all()
    assert project.computed == ["words", "total"]
    assert project.store.examine(entry) is None


def test_damaged_manifest_is_removed_and_made_again(project: Project) -> None:
    before = project.run_all()["source"].to_bytes()
    path = project.workspace.manifest("source")
    path.write_bytes(before.replace(b'"size":4', b'"size":5'))
    with pytest.raises(VerificationError, match="removed, so that rerunning source"):
        project.run("words")
    project.computed.clear()
    assert project.run("source").to_bytes() == before and project.computed == []


def test_deleted_and_altered_views_are_mended(project: Project) -> None:
    project.run_all()
    view = project.results / "source"
    (view / "deep" / "licence.txt").unlink()
    (view / "text.txt").unlink()
    (view / "text.txt").write_text("altered")
    project.computed.clear()
    project.run("source")
    assert project.computed == []
    assert (view / "text.txt").read_text() == "the quick brown fox"
    assert (view / "deep" / "licence.txt").read_text() == "toy\n"


def test_a_link_in_place_of_a_view_is_replaced_and_not_followed(
    project: Project, tmp_path: Path
) -> None:
    project.run_all()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("mine")
    (elsewhere / "manifest.json").write_text("mine too")
    shutil.rmtree(project.results / "side")
    (project.results / "side").symlink_to(elsewhere)
    before = project.run("side")
    assert sorted(path.name for path in elsewhere.iterdir()) == ["manifest.json", "mine.txt"]
    assert not (project.results / "side").is_symlink()
    assert project.workspace.manifest("side").read_bytes() == before.to_bytes()


def test_touch_copy_and_move_rerun_nothing(project: Project, tmp_path: Path) -> None:
    project.run_all()
    before = project.manifest_bytes()
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
    project.run_all()
    assert len(project.computed) == 4
    for transfer, name in ((shutil.copytree, "copy"), (shutil.move, "moved")):
        target = tmp_path.parent / f"{tmp_path.name}-{name}"
        transfer(str(project.folder), str(target))
        elsewhere = Project(target)
        elsewhere.run_all()
        assert elsewhere.computed == [] and elsewhere.manifest_bytes() == before
        assert root(elsewhere.results, elsewhere.graph) == root(
            target / "results" / "toy", make_graph()
        )


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda out: None, "made no file"),
        (lambda out: (out / "empty").mkdir(), "made no file"),
        (lambda out: (out / "link").symlink_to("/etc/passwd"), "link is a link"),
        (lambda out: os.mkfifo(out / "pipe"), "pipe is a link or a special file"),
        (lambda out: (out / "a\nb").write_text(""), "unprintable"),
        (lambda out: (out / "a\\b").write_text(""), "backslash"),
        (lambda out: (out / "manifest.json").write_text(""), "manifest's own name"),
        (lambda out: [(out / name).write_text("") for name in ("a", "A")], "differ in case"),
        (lambda out: os.close(os.open(bytes(out) + b"/\xff", os.O_CREAT)), "unprintable"),
    ],
)
def test_odd_outputs_are_refused_and_leave_nothing(
    project: Project, write: Any, message: str
) -> None:
    with pytest.raises(VerificationError, match=message) as error:
        project.run("source", lambda job: write(job.output))
    assert str(error.value).startswith("source: ") and "\n" not in str(error.value)
    assert not project.workspace.manifest("source").exists()
    assert not (project.store.root / "actions").exists()
    project.run("source")


def test_inputs_are_read_only_and_writing_to_them_is_found(project: Project) -> None:
    project.run("source")

    def vandal(job: Job) -> None:
        file = job.inputs["text"] / "text.txt"
        assert stat.S_IMODE(file.stat().st_mode) == 0o444
        file.chmod(0o644)
        file.write_text("changed")
        words(job)

    with pytest.raises(VerificationError, match="words wrote to its input"):
        project.run("words", vandal)
    assert not project.workspace.manifest("words").exists()
    project.run_all()
    assert (project.results / "source" / "text.txt").read_text() == "the quick brown fox"


def test_scratch_survives_a_kill_and_leftovers_do_not(project: Project) -> None:
    project.run("source")

    def killed(job: Job) -> None:
        (job.scratch / "checkpoint").write_text("half")
        (job.output / "partial").write_text("half")
        os.kill(os.getpid(), 9)

    assert in_child(lambda: project.run("words", killed)) == -9
    seen: dict[str, Any] = {}

    def resumed(job: Job) -> None:
        seen["checkpoint"] = (job.scratch / "checkpoint").read_text()
        seen["output"] = list(job.output.iterdir())
        words(job)

    made = project.run("words", resumed)
    assert seen == {"checkpoint": "half", "output": []} and "partial" not in made.files
    assert list((project.store.root / "work").iterdir()) == []


def test_scratch_survives_an_error(project: Project) -> None:
    def failing(job: Job) -> None:
        (job.scratch / "checkpoint").write_text("half")
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        project.run("source", failing)
    assert [path.name for path in (project.store.root / "work").glob("*/*")] == ["scratch"]


def test_notes_of_a_stage_are_kept_with_the_journal(project: Project) -> None:
    """Under the identity that was computed, of a failure too; they are no part of the artifact."""

    def noting(job: Job) -> None:
        (job.scratch / "notes").mkdir(exist_ok=True)
        (job.scratch / "notes" / "figures.jsonl").write_text('{"step":1}\n')
        words(job)
        if job.settings["cut"].length == 3:
            raise RuntimeError("broken")

    project.run("source")
    made = project.run("words", noting)
    project.graph = make_graph(cut=Cut(length=3))
    with pytest.raises(RuntimeError, match="broken"):
        project.run("words", noting)
    found = sorted((project.results / "journal" / "notes").glob("*/figures.jsonl"))
    assert len(found) == 2 and all(path.read_text() == '{"step":1}\n' for path in found)
    assert identity_key(made.identity) in {path.parent.name for path in found}
    assert "figures.jsonl" not in {Path(path).name for path in made.files}


def test_two_processes_compute_once(project: Project, tmp_path: Path) -> None:
    log = tmp_path / "computed"

    def slow(job: Job) -> None:
        with log.open("a") as file:
            file.write("x")
        time.sleep(0.3)
        source(job)

    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            try:
                project.run("source", slow)
            except BaseException:
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    assert log.read_text() == "x"
    outcomes = sorted(entry["outcome"] for entry in journal(project, "source"))
    assert outcomes == ["computed", "hit", "hit"]


def test_journal_tells_host_and_memory_and_mends_a_cut_line(project: Project) -> None:
    project.run("source")
    path = project.results / "journal" / "source.jsonl"
    path.write_bytes(path.read_bytes() + b'{"cut')
    project.run("source")
    lines = path.read_text().splitlines()
    assert lines[1] == '{"cut' and len(lines) == 3
    last = json.loads(lines[2])
    assert last["outcome"] == "hit" and last["cores"] == os.cpu_count()
    assert last["sharding"] == {"kind": "none", "ranks": None, "wrap": "block"}
    assert last["peak_rss"] > 1_000_000 and last["identity"] == json.loads(lines[0])["identity"]


def test_record_that_is_damaged_counts_as_none(project: Project) -> None:
    before = project.run("source").to_bytes()
    (record,) = (project.store.root / "actions").iterdir()
    record.write_bytes(before[:-10])
    project.computed.clear()
    assert project.run("source").to_bytes() == before and project.computed == ["source"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True) if os.geteuid() == 0 else None
    if done is None or done.returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_is_one_line_and_leaves_nothing_half_done(small_disk: Path) -> None:
    project = Project(small_disk)
    project.run("source")

    def large(job: Job) -> None:
        for number in range(64):
            (job.output / f"{number}.bin").write_bytes(bytes([number]) * 8192)

    with pytest.raises(KitError, match=r"words: .*the disk is full; free some space") as error:
        project.run("words", large)
    assert "\n" not in str(error.value)
    assert not project.workspace.manifest("words").exists()
    assert [path.name for path in (small_disk / "store" / "work").glob("*/*")] == ["scratch"]
    project.run_all()
    assert (project.results / "total" / "total.txt").read_text() == "[1, 9]"


def test_full_disk_at_any_later_write(small_disk: Path) -> None:
    """The disk fills while results are published: one line, then a rerun completes."""
    project = Project(small_disk)
    project.run("source")
    ballast = small_disk / "ballast"

    def fill(job: Job) -> None:
        words(job)
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                return

    with pytest.raises(KitError, match="disk is full"):
        project.run("words", fill)
    assert not project.workspace.manifest("words").exists()
    ballast.unlink()
    project.run("words")
    assert (project.results / "words" / "words.txt").read_text() == "the quick"


def test_missing_right_to_write_is_one_line(project: Project) -> None:
    reading, writing = os.pipe()
    toolchain, stage = project.toolchain(), project.graph["source"]
    toolchain.code.closure(stage.kind)

    def refused() -> None:
        project.folder.chmod(0o555)
        if os.geteuid() == 0:
            os.setuid(65534)
        with pytest.raises(KitError) as error:
            run_stage(stage, project.graph, project.workspace, toolchain, source)
        os.write(writing, str(error.value).encode())

    assert in_child(refused) == 0
    project.folder.chmod(0o755)
    text = os.read(reading, 4096).decode()
    assert text.startswith("source: ") and "Permission denied" in text and "\n" not in text


@pytest.mark.parametrize("place", ["store/actions", "store/locks", "results/journal"])
def test_a_file_where_a_folder_is_needed_is_one_line(tmp_path: Path, place: str) -> None:
    project = Project(tmp_path)
    folder = project.results / "journal" if place.startswith("results") else tmp_path / place
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("in the way")
    with pytest.raises(KitError, match="a file stands where a folder is needed") as error:
        project.run("source")
    assert "\n" not in str(error.value)
    folder.unlink()
    project.run_all()


def test_a_read_only_disk_has_its_own_advice() -> None:
    """Rights would not help there."""
    cure = cure_of(OSError(errno.EROFS, "x", "/store"))
    assert cure is not None and cure.startswith("Read-only file system; mount it for writing")
    assert "give this user the right" in str(cure_of(OSError(errno.EACCES, "x", "/store")))
    assert cure_of(OSError(errno.EIO, "x", "/store")) is None
