"""Checks of a run: fast at start, complete in an audit, and the root."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from instella.artifacts import stamps
from instella.artifacts.check import Fault, audit, check_results, root, withdraw
from instella.artifacts.identity import identity_key
from instella.artifacts.job import Job
from instella.artifacts.manifest import Entry, read_manifest
from instella.artifacts.why import why
from instella.canonical import json_bytes, sha256_bytes
from instella.errors import Incomplete, VerificationError
from instella.merkle import tree_root

from .toy import Cut, Project, make_graph, words


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.run_all()
    return made


def check(project: Project) -> list[Fault]:
    return check_results(project.results, project.store, project.graph)


def full(project: Project) -> list[Fault]:
    return audit(project.results, project.store, project.graph, project.toolchain())


def explain(project: Project, stage: str) -> str:
    return why(stage, project.results, project.store, project.graph, project.toolchain())


def stored(project: Project, stage: str, path: str) -> Path:
    files = json.loads(project.workspace.manifest(stage).read_bytes())["files"]
    return project.store.object_path(files[path]["sha256"])


def alter_keeping_mtime(path: Path) -> None:
    before = path.stat()
    path.chmod(0o644)
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    path.chmod(0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_sound_run_is_clean(project: Project) -> None:
    assert check(project) == [] and full(project) == []


def test_nothing_is_read_when_nothing_changed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a run the stamps are there; one rehash at most after links went away."""
    assert check(project) == []
    read: list[Path] = []
    original = stamps.examine_file

    def noting(path: Path, entry: Entry) -> str | None:
        read.append(path)
        return original(path, entry)

    monkeypatch.setattr(stamps, "examine_file", noting)
    assert check(project) == [] and read == []
    target = stored(project, "words", "words.txt")
    os.utime(target, (1, 1))
    assert check(project) == [] and read == [target]


def test_the_run_itself_leaves_stamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Project(tmp_path)
    made.run_all()
    monkeypatch.setattr(stamps, "examine_file", lambda path, entry: pytest.fail(f"{path} was read"))
    assert check(made) == []


@pytest.mark.parametrize("scope", [check, full])
def test_altered_byte_with_old_mtime_is_found(
    project: Project, scope: Callable[[Project], list[Fault]]
) -> None:
    assert check(project) == []
    alter_keeping_mtime(stored(project, "words", "words.txt"))
    (fault,) = scope(project)
    assert (fault.stage, fault.kind, fault.file) == ("words", "bytes", "words.txt")
    assert fault.expected.startswith("sha256 ") and fault.found.startswith("sha256 ")
    assert fault.dependants == ("total",)
    assert "words: bytes: words.txt: expected sha256" in str(fault)


@pytest.mark.parametrize("scope", [check, full])
def test_deleted_and_truncated_objects_are_found(
    project: Project, scope: Callable[[Project], list[Fault]]
) -> None:
    stored(project, "total", "total.txt").unlink()
    path = stored(project, "source", "text.txt")
    path.chmod(0o644)
    os.truncate(path, 3)
    found = {(fault.stage, fault.file): fault.found for fault in scope(project)}
    assert found == {("source", "text.txt"): "3 bytes", ("total", "total.txt"): "nothing"}


def test_shared_object_is_one_fault_of_its_first_maker(project: Project) -> None:
    alter_keeping_mtime(stored(project, "side", "licence.txt"))
    (fault,) = full(project)
    assert (fault.stage, fault.file) == ("source", "deep/licence.txt")
    assert fault.dependants == ("words", "side", "total")


@pytest.mark.parametrize("scope", [check, full])
def test_views_are_checked(project: Project, scope: Callable[[Project], list[Fault]]) -> None:
    view = project.results / "words"
    (view / "words.txt").unlink()
    (view / "words.txt").write_text("THE QUICK")
    (project.results / "total" / "total.txt").unlink()
    found = [(fault.stage, fault.kind, fault.file) for fault in scope(project)]
    assert found == [("words", "view", "words.txt"), ("total", "view", "total.txt")]
    project.run_all()
    assert scope(project) == []


@pytest.mark.parametrize("scope", [check, full])
@pytest.mark.parametrize("obstacle", ["file", "link to itself"])
def test_what_stands_in_place_of_a_folder_is_a_fault(
    project: Project, scope: Callable[[Project], list[Fault]], obstacle: str
) -> None:
    objects = stored(project, "total", "total.txt").parent
    for folder in (project.results / "source" / "deep", objects):
        shutil.rmtree(folder)
        if obstacle == "file":
            folder.write_text("no folder")
        else:
            folder.symlink_to(folder.name)
    found = [(fault.stage, fault.kind, fault.file, fault.found) for fault in scope(project)]
    assert ("source", "view", "deep/licence.txt", "nothing") in found
    assert ("total", "bytes", "total.txt", "nothing") in found


def test_a_foreign_name_cannot_fake_a_line(project: Project) -> None:
    for name in (b"a\nclean: 4 stages", b"\xff"):
        (project.results / "words" / os.fsdecode(name)).write_text("")
    lines = [str(fault) for fault in full(project)]
    assert len(lines) == 2 and all(line.isprintable() and line.isascii() for line in lines)


def test_a_copied_view_is_as_good_as_a_link(project: Project) -> None:
    view = project.results / "words" / "words.txt"
    data = view.read_bytes()
    view.unlink()
    view.write_bytes(data)
    assert check(project) == [] and full(project) == []


def test_unexpected_file_in_a_view_is_found_by_the_audit(project: Project) -> None:
    (project.results / "words" / "notes.txt").write_text("x")
    assert [(fault.kind, fault.file) for fault in full(project)] == [("view", "notes.txt")]


@pytest.mark.parametrize("scope", [check, full])
def test_altered_manifest_is_found_even_with_its_content_recomputed(
    project: Project, scope: Callable[[Project], list[Fault]]
) -> None:
    path = project.workspace.manifest("total")
    value = json.loads(path.read_bytes())
    del value["files"]["total.txt"]
    value["files"]["other.txt"] = json.loads(project.workspace.manifest("source").read_bytes())[
        "files"
    ]["text.txt"]
    value["content"] = sha256_bytes(
        json_bytes({"files": value["files"], "origin": value["origin"]})
    )
    path.write_bytes(json_bytes(value))
    assert ("total", "manifest") in {(fault.stage, fault.kind) for fault in scope(project)}


@pytest.mark.parametrize("scope", [check, full])
def test_broken_manifest_is_found(
    project: Project, scope: Callable[[Project], list[Fault]]
) -> None:
    project.workspace.manifest("words").write_bytes(b"{")
    (fault,) = [fault for fault in scope(project) if fault.kind == "manifest"]
    assert fault.stage == "words" and "\n" not in str(fault)


@pytest.mark.parametrize("scope", [check, full])
def test_result_of_other_inputs_is_stale(
    project: Project, scope: Callable[[Project], list[Fault]]
) -> None:
    old = project.workspace.manifest("total").read_bytes()
    project.graph = make_graph(cut=Cut(length=4))
    project.run("words")
    assert project.workspace.manifest("total").read_bytes() == old
    faults = [fault for fault in scope(project) if fault.kind == "stale input"]
    assert [(fault.stage, fault.file) for fault in faults] == [("total", "input words")]


def test_missing_and_extra_stages(project: Project) -> None:
    shutil.rmtree(project.results / "total")
    shutil.copytree(project.results / "side", project.results / "other")
    found = [(fault.stage, fault.kind) for fault in full(project)]
    assert found == [("total", "missing stage"), ("other", "extra stage")]


LINES = (b'{"step":1}\n', b'{"step":2}\n', b'{"step":3}\n')


def with_ledger(project: Project) -> None:
    """Let ``words`` publish a ledger too."""

    def function(job: Job) -> None:
        words(job)
        (job.output / "deep").mkdir()
        (job.output / "deep" / "a.ledger.jsonl").write_bytes(b"".join(LINES))

    project.graph = make_graph(cut=Cut(length=5))
    project.run("words", function)
    project.run("total")


def change_root(path: Path) -> None:
    value = json.loads(path.read_bytes())
    value["ledgers"]["deep/a.ledger.jsonl"] = "ab" * 32
    path.chmod(0o644)
    path.write_bytes(json_bytes(value))


def test_a_ledger_has_its_root_in_the_manifest(project: Project) -> None:
    with_ledger(project)
    manifest = read_manifest(project.workspace.manifest("words"))
    assert manifest.ledgers == {"deep/a.ledger.jsonl": tree_root(LINES).hex()}
    assert read_manifest(project.workspace.manifest("side")).ledgers == {}
    assert check(project) == [] and full(project) == []


def test_audit_names_a_ledger_whose_root_is_another(project: Project) -> None:
    with_ledger(project)
    manifest = project.workspace.manifest("words")
    record = project.store.root / "actions" / identity_key(read_manifest(manifest).identity)
    change_root(manifest)
    (fault,) = check(project)
    assert (fault.kind, fault.stage) == ("manifest", "words")
    assert "the roots of its ledgers as recorded" in str(fault)
    change_root(record)  # with the record altered too only the lines can tell
    assert check(project) == []
    (fault,) = full(project)
    assert str(fault) == (
        f"words: ledger: deep/a.ledger.jsonl: expected Merkle root {tree_root(LINES).hex()} "
        f"from its lines, found {'ab' * 32}; read by total"
    )


def test_a_damaged_ledger_is_one_fault(project: Project) -> None:
    with_ledger(project)
    alter_keeping_mtime(stored(project, "words", "deep/a.ledger.jsonl"))
    assert [fault.kind for fault in full(project)] == ["bytes"]


def test_what_a_workflow_engine_imports_has_no_hash_library() -> None:
    script = (
        "import sys, instella.artifacts.check, instella.artifacts.runner, instella.recipe.graph\n"
        "assert not {'blake3', 'instella.merkle', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_audit_tells_what_differs_from_this_tree(project: Project) -> None:
    project.graph = make_graph(cut=Cut(length=4))
    (project.package / "helper.py").write_text("FACTOR = 5\n")
    (project.folder / "requirements" / "run.lock").write_text("numpy==2.0\n")
    found = {(f.stage, f.file) for f in full(project) if f.kind == "differs from this tree"}
    assert ("words", "settings.cut.length") in found and ("side", "lock") in found
    assert ("total", "code.instella.helper") in found
    (setting,) = [f for f in full(project) if f.file == "settings.cut.length"]
    assert (setting.expected, setting.found) == ("4", "9")


def test_withdraw_makes_exactly_the_bad_stages_rerun(project: Project) -> None:
    before = project.manifest_bytes()
    alter_keeping_mtime(stored(project, "words", "words.txt"))
    assert withdraw(project.results, check(project)) == ("words",)
    assert not project.workspace.manifest("words").exists()
    project.computed.clear()
    project.run_all()
    assert project.computed == ["words"] and project.manifest_bytes() == before
    assert full(project) == []


def test_root_depends_on_content_alone(project: Project, tmp_path: Path) -> None:
    contents = {
        name: json.loads(data)["content"] for name, data in project.manifest_bytes().items()
    }
    first = root(project.results, project.graph)
    assert first == sha256_bytes(json_bytes(contents))
    other = Project(tmp_path / "other", make_graph(label="another"))
    other.run_all()
    assert root(other.results, other.graph) == first
    longer = Project(tmp_path / "longer", make_graph(cut=Cut(length=4)))
    longer.run_all()
    assert root(longer.results, longer.graph) != first


def test_root_of_an_incomplete_or_damaged_run(project: Project) -> None:
    path = project.workspace.manifest("side")
    data = path.read_bytes()
    path.unlink()
    with pytest.raises(Incomplete, match=r"1 of 4 stages have no result: side;"):
        root(project.results, project.graph)
    path.write_bytes(data[:-2])
    with pytest.raises(VerificationError, match=r"side/manifest\.json"):
        root(project.results, project.graph)
    path.write_bytes(project.workspace.manifest("words").read_bytes())
    with pytest.raises(VerificationError, match="stage: expected side, found words"):
        root(project.results, project.graph)


def test_why_nothing_would_run(project: Project) -> None:
    assert explain(project, "total").startswith("total would not run: ")


def test_why_a_setting(project: Project) -> None:
    project.graph = make_graph(cut=Cut(length=4))
    assert explain(project, "words") == (
        "words would run, because setting cut.length changed from 9 to 4."
    )
    assert explain(project, "total") == (
        "total would run only if words makes other bytes, which would run, because "
        "setting cut.length changed from 9 to 4."
    )


def test_why_code_lock_input_and_damage(project: Project) -> None:
    helper = project.package / "helper.py"
    text = helper.read_text()
    helper.write_text("FACTOR = 7\n")
    assert "because code instella.helper changed." in explain(project, "source")
    helper.write_text(text)
    lock = project.folder / "requirements" / "run.lock"
    pinned = lock.read_text()
    lock.write_text("numpy==3\n")
    assert "because the lock file changed." in explain(project, "source")
    lock.write_text(pinned)
    project.graph = make_graph(text="another text")
    project.run("source")
    assert "because the content of input text changed." in explain(project, "words")
    alter_keeping_mtime(stored(project, "source", "text.txt"))
    assert "text.txt is not as recorded" in explain(project, "source")


def test_why_without_results(project: Project) -> None:
    project.workspace.manifest("words").unlink()
    assert explain(project, "words") == (
        "words would be taken from the store, or computed if the store's bytes are bad, because "
        "it has no result yet."
    )
    assert explain(project, "total").startswith("total would not run: ")
    forget(project, "words")
    assert explain(project, "words") == "words would run, because it has no result yet."
    assert explain(project, "total") == "total would run after words, which must be made first."


def test_why_of_results_that_only_the_store_has(project: Project) -> None:
    shutil.rmtree(project.results)
    for name in project.graph:
        assert explain(project, name).startswith(f"{name} would be taken from the store, ")


def test_why_of_a_change_that_the_store_knows(project: Project) -> None:
    """The changed stage and what follows were computed before, so nothing would be computed."""
    project.graph = make_graph(cut=Cut(length=4))
    project.run_all()
    project.graph = make_graph()
    project.computed.clear()
    sentences = {name: explain(project, name) for name in ("words", "total")}
    assert sentences["words"] == (
        "words would be taken from the store, or computed if the store's bytes are bad, because "
        "setting cut.length changed from 4 to 9."
    )
    assert sentences["total"] == (
        "total would be taken from the store, or computed if the store's bytes are bad, because "
        "the content of input words changed."
    )
    project.run_all()
    assert project.computed == []


def forget(project: Project, stage: str) -> None:
    """Drop every record of a stage from the store."""
    for path in (project.store.root / "actions").iterdir():
        if json.loads(path.read_bytes())["stage"] == stage:
            path.unlink()
