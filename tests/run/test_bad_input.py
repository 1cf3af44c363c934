"""Faults a user makes or meets: one clear line, the right exit status, nothing lost."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from run_helpers import NOTHING_TO_DO, Run, copy_tree, snapshot

from instella.prove.copies import PROJECT
from instella.prove.processes import Finished, instella, kit, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def done(nano_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A finished run that the tests below share; afterwards it still has all it had."""
    run = Run(copy_tree(nano_run.folder, tmp_path_factory.mktemp("bad") / "x", "-a"), "nano")
    kept = (run.store / "sha256", run.store / "actions", run.results)
    before = snapshot(*kept)
    yield run
    assert snapshot(*kept) == before


def assert_refused(finished: Finished, code: int, *fragments: str) -> None:
    """The exit status, and exactly one line on stderr that says what is wrong."""
    assert finished.code == code, finished.err
    assert "Traceback" not in finished.out + finished.err
    said = [line for line in finished.err.splitlines() if re.match(r"(Error|instella): ", line)]
    assert len(said) == 1, finished.err
    for fragment in fragments:
        assert fragment in said[0], said[0]


@dataclass(frozen=True)
class Fault:
    """A broken recipe: how its text is altered, and what the line has to name."""

    alter: Callable[[bytes], bytes]
    fragments: tuple[str, ...]


def _swap(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def alter(text: bytes) -> bytes:
        assert old in text
        return text.replace(old, new, 1)

    return alter


RECIPES = {
    "misspelt key": Fault(
        _swap(b"    init_seed: 6198", b"    init_sed: 6198"), ("init_sed", "init_seed")
    ),
    "wrong type": Fault(_swap(b"hidden_size: 32", b"hidden_size: wide"), ("hidden_size", "wide")),
    "value out of bounds": Fault(
        _swap(b"hidden_size: 32", b"hidden_size: -32"), ("hidden_size", "-32")
    ),
    "key twice": Fault(_swap(b"name: nano", b"name: nano\nname: other"), ("name")),
    "required key missing": Fault(_swap(b"numerics: portable-x86\n", b""), ("numerics",)),
    "unknown source": Fault(_swap(b"{source: code, adapter", b"{source: cod, adapter"), ("cod")),
    "empty file": Fault(lambda _: b"", ("bad.yaml",)),
    "not YAML": Fault(lambda text: text + b"\n  - [unclosed", ("bad.yaml",)),
    "not text": Fault(lambda _: b"\x80\x81\x82\xff", ("bad.yaml",)),
    "a YAML object tag": Fault(
        _swap(b"name: nano", b"name: !!python/object/apply:os.getcwd []"), ("name")
    ),
}


@pytest.mark.parametrize("fault", RECIPES.values(), ids=RECIPES.keys())
def test_bad_recipe(done: Run, tmp_path: Path, fault: Fault) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(fault.alter(done.recipe_file.read_bytes()))
    fragments = (str(path), *fault.fragments)
    assert_refused(kit(done.folder, "--config", f"recipe={path}"), 2, *fragments)
    assert_refused(instella(done.folder, "recipe", "check", str(path)), 2, *fragments)


def test_byte_order_mark_is_harmless(done: Run, tmp_path: Path) -> None:
    """A recipe saved by an editor that marks UTF-8 is the same recipe."""
    path = tmp_path / "marked.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + done.recipe_file.read_bytes())
    finished = kit(done.folder, "-n", "--config", f"recipe={path}")
    assert finished.code == 0, finished.err
    assert NOTHING_TO_DO in finished.out + finished.err


def test_recipe_path_with_blanks_is_harmless(done: Run, tmp_path: Path) -> None:
    path = tmp_path / "my récipe 二.yaml"
    path.write_bytes(done.recipe_file.read_bytes())
    finished = kit(done.folder, "-n", "--config", f"recipe={path}")
    assert finished.code == 0, finished.err
    assert NOTHING_TO_DO in finished.out + finished.err


def test_missing_recipe(done: Run) -> None:
    name = "recipes/nono.yaml"
    assert_refused(kit(done.folder, "--config", f"recipe={name}"), 2, name)
    assert_refused(instella(done.folder, "--recipe", name, "root"), 2, name)


def test_recipe_that_is_a_folder(done: Run) -> None:
    assert_refused(kit(done.folder, "--config", "recipe=recipes"), 2, "recipes")


def test_unreadable_recipe(done: Run, tmp_path: Path) -> None:
    """A link to itself cannot be read by anybody, not even by root."""
    path = tmp_path / "recipe.yaml"
    path.symlink_to(path)
    assert_refused(kit(done.folder, "--config", f"recipe={path}"), 2, str(path))


def test_misspelt_placement(done: Run) -> None:
    assert_refused(kit(done.folder, "--config", "rnaks=2"), 2, "rnaks", "ranks")


def test_unknown_stage(done: Run) -> None:
    assert_refused(instella(done.folder, "why", "grpo4"), 2, "grpo4", "grpo3")


def test_store_that_is_a_file(done: Run, tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(b"")
    arguments = ("--store", str(path), "--results", str(tmp_path / "results"))
    finished = instella(done.folder, *arguments, "stage", "source_sums")
    assert_refused(finished, 2, str(path))
    finished = kit(done.folder, "--config", f"store={path}", f"results={tmp_path / 'results'}")
    assert_refused(finished, 2, str(path))


def test_results_that_cannot_be_written(done: Run) -> None:
    """Nobody may make a folder in /sys, not even root."""
    finished = instella(done.folder, "--results", "/sys/results", "stage", "source_sums")
    assert_refused(finished, 1, "source_sums", "/sys/results")
    finished = kit(done.folder, "--config", "results=/sys/results")
    assert finished.code != 0
    assert "/sys/results" in finished.err
    assert "Traceback" not in finished.err


def test_incomplete_run_has_no_root(done: Run, tmp_path: Path) -> None:
    finished = instella(done.folder, "--results", str(tmp_path), "root")
    assert_refused(finished, 3, "source_olmo")


def _placement(done: Run, folder: Path, recipe: Path) -> list[str]:
    """Options for a run of its own, with an empty downloads folder."""
    values = {
        "recipe": str(recipe),
        "results": str(folder / "results"),
        "store": str(folder / "store"),
        "downloads": str(folder / "downloads"),
    }
    path = folder / "placement.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return ["--config", str(path)]


def test_source_with_another_hash(done: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    text = done.recipe_file.read_text(encoding="utf-8")
    recipe.write_text(text.replace("sha256: e091cc3e", "sha256: 00000000"), encoding="utf-8")
    options = _placement(done, tmp_path, recipe)
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(PROJECT / "downloads")}
    finished = instella(done.folder, *options, "stage", "source_code", extra=offline)
    assert_refused(finished, 4, "sympy-1.14.0", "00000000", "e091cc3e")
    assert not list((tmp_path / "store").glob("sha256/*/*"))


def test_package_that_cannot_be_had(done: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    options = _placement(done, tmp_path, done.recipe_file)
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "empty")}
    finished = instella(done.folder, *options, "stage", "source_code", extra=offline)
    assert_refused(finished, 4, "sympy==1.14.0")


def test_full_disk(done: Run, tmp_path: Path) -> None:
    """The store lies on a file system of 256 KiB, in a mount namespace of its own."""
    private = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "-r"]
    probe = subprocess.run([*private, "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], check=False)
    if probe.returncode:
        pytest.skip("this machine lets nobody mount a small file system, so no disk can be full")
    store = tmp_path / "store"
    store.mkdir()
    mount = f"mount -t tmpfs -o size=256k tmpfs '{store}' && shift 0 && \"$@\"; code=$?; "
    count = f"find '{store}/sha256' -type f 2>/dev/null | wc -l; exit $code"
    options = ["--store", str(store), "--results", str(tmp_path / "results")]
    command = [sys.executable, "-m", "instella", *options, "stage", "source_sums"]
    finished = run([*private, "sh", "-c", mount + count, "sh", *command], done.folder, 60.0)
    assert_refused(finished, 1, "source_sums", "disk is full")
    assert finished.out.split()[-1] == "0"
    assert not (tmp_path / "results" / "nano" / "source_sums" / "manifest.json").exists()
