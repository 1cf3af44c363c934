"""A dozen kinds of tampering, planted by seed in a small run: each is found and named."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from audit_runs import graph_of

from benchmarks.plants import PLANTS, Target, planted, rewrite_file
from benchmarks.tamper import dependants_named
from instella.artifacts.check import DIFFERS, Fault
from instella.artifacts.code import CodeIndex
from instella.artifacts.identity import PACKAGE_FOLDER, Toolchain, lock_hash
from instella.artifacts.manifest import Entry
from instella.artifacts.store import Store
from instella.audit.journals import computed_seconds
from instella.audit.rehash import Rehash
from instella.audit.report import fault_lines
from instella.audit.tree import tree_notes
from instella.audit.verify import Findings
from instella.canonical import json_bytes, sha256_bytes
from instella.prove.copies import PROJECT

Check = Callable[..., Findings]


@pytest.fixture
def target(toy_copy: Path, tmp_path: Path) -> Target:
    """The copied run, with a lock of its own."""
    project = tmp_path / "project"
    shutil.copytree(PROJECT / "requirements", project / "requirements")
    index = CodeIndex(PACKAGE_FOLDER)

    def toolchain() -> Toolchain:
        lock = lock_hash(project / "requirements" / "run.lock")
        return Toolchain(index, lock, "portable-x86")

    store = Store(toy_copy.parent.parent / "store")
    return Target(toy_copy, store, graph_of(), toolchain, project)


def test_every_kind_of_fault_is_found_and_named(target: Target) -> None:
    assert target.audit() == []
    chance = random.Random(20251107)
    for kind in PLANTS:
        for _ in range(3):
            with planted(target, kind, chance) as one:
                faults = target.audit()
                assert one.is_named(faults), f"{kind}: {one.text}: {faults[:3]}"
                assert dependants_named(target, faults)
                assert all("\n" not in str(fault) and str(fault).isprintable() for fault in faults)
    assert target.audit() == []


def test_an_audit_changes_nothing(target: Target) -> None:
    """Not even a damaged record, which a run would set aside."""
    with planted(target, "record damaged", random.Random(1)):
        before = sorted(
            (str(p), p.lstat().st_mtime_ns) for p in target.results.parent.parent.rglob("*")
        )
        first, second = target.audit(), target.audit()
        after = sorted(
            (str(p), p.lstat().st_mtime_ns) for p in target.results.parent.parent.rglob("*")
        )
    assert first == second != []
    assert before == after


def test_a_forged_chain_that_fits_is_told_by_the_journal_alone(target: Target) -> None:
    """Whoever rewrites bytes, manifest and record leaves the journal; who rewrites it too is
    caught by computing the stage again or by a root from elsewhere, not by reading."""
    data = (target.results / "train" / "trainer.json").read_bytes() + b" "
    rewrite_file(target.results, "train", "trainer.json", data, target.store)
    for path in (target.store.root / "actions").iterdir():
        if json.loads(path.read_bytes())["stage"] == "train":
            path.write_bytes((target.results / "train" / "manifest.json").read_bytes())
    (fault,) = target.audit()
    assert (fault.stage, fault.kind) == ("train", "journal")
    journal = target.results / "journal" / "train.jsonl"
    line = json.loads(journal.read_bytes())
    line["content"] = target.manifest("train").content
    journal.write_bytes(json_bytes(line))
    assert target.audit() == []


def test_summaries_and_strangers(target: Target, check: Check) -> None:
    (target.results / "root").write_text("0" * 64 + "\n")
    (target.results / "other").mkdir()
    faults = check(target.results, target.graph).faults
    assert [(fault.kind, fault.file) for fault in faults] == [
        ("summary", "root"),
        ("extra stage", "other"),
    ]


def test_a_crash_cut_line_of_a_journal_is_no_fault(target: Target) -> None:
    journal = target.results / "journal" / "train.jsonl"
    line = journal.read_bytes()
    journal.write_bytes(line[:50] + b"\n" + line)
    assert target.audit() == []


ODD_VALUES: dict[str, dict[str, object]] = {
    "huge": {"seconds": 10**4000},
    "below zero": {"seconds": -1.0},
    "more than a life": {"seconds": 1e300},
    "ranks": {"ranks": 10**4000},
}


@pytest.mark.parametrize("values", ODD_VALUES.values(), ids=ODD_VALUES)
def test_a_number_of_a_journal_that_nothing_takes(
    target: Target, values: dict[str, object]
) -> None:
    journal = target.results / "journal" / "train.jsonl"
    journal.write_bytes(json_bytes(json.loads(journal.read_bytes()) | values))
    assert {fault.file for fault in target.audit()} == {"journal/train.jsonl"}
    manifests = {"train": target.manifest("train")}
    assert computed_seconds(target.results, manifests) == {"train": 0.0}


def test_half_a_character_in_a_journal(target: Target) -> None:
    journal = target.results / "journal" / "train.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'{"', b'{"\\ud800":1,"', 1))
    assert {fault.file for fault in target.audit()} == {"journal/train.jsonl"}


def test_wheels_that_are_not_the_locks(target: Target) -> None:
    path = target.project / "requirements" / "bytes.lock"
    path.write_text(path.read_text().replace("numpy==", "numpy==9"))
    (fault,) = target.audit()
    assert (fault.stage, fault.kind, fault.file) == ("(project)", "lock", "bytes.lock")
    assert fault.dependants == ("tokens", "tokenizer", "train")


def test_a_dirty_tree_is_named(tmp_path: Path) -> None:
    assert "not under version control" in tree_notes(tmp_path)[0]
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git = "git -c user.name=a -c user.email=a@b -c init.defaultBranch=main"
    (tmp_path / "instella").mkdir()
    (tmp_path / "instella" / "a.py").write_text("A = 1\n")
    assert os.system(f"cd {tmp_path} && {git} init -q && {git} add . && {git} commit -qm a") == 0
    assert tree_notes(tmp_path) == []
    (tmp_path / "instella" / "a.py").write_text("A = 2\n")
    (tmp_path / "instella" / "b.py").write_text("")
    (note,) = tree_notes(tmp_path)
    assert note.startswith("dirty tree: not as in commit ")
    assert note.endswith(": instella/a.py, instella/b.py")


def test_rehash_reads_in_threads_and_counts(tmp_path: Path) -> None:
    entries = {}
    for number in range(40):
        path = tmp_path / str(number)
        path.write_bytes(bytes([number]) * number * 100)
        entries[path] = Entry(sha256_bytes(path.read_bytes()), number * 100)
    (tmp_path / "7").write_bytes(b"x" * 700)
    (tmp_path / "9").unlink()
    os.mkfifo(tmp_path / "9")
    rehash = Rehash(3)
    assert list(rehash(entries)) == [tmp_path / "7", tmp_path / "9"]
    assert (rehash.files, rehash.size) == (40, sum(range(40)) * 100)


def test_what_many_stages_share_stands_once() -> None:
    faults = [Fault(name, DIFFERS, "lock", "a", "b") for name in "abcdef"]
    faults.append(Fault("a", DIFFERS, "code", "a", "b"))
    assert list(fault_lines(faults)) == [
        "6 stages (a, b, c, d and 2 more): differs from this tree: lock: expected a, found b",
        "a: differs from this tree: code: expected a, found b",
    ]
