"""Runs with nothing in common but the recipe make the same bytes, and canonical ones."""

import getpass
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_helpers import Run, assert_recorded

from instella.prove.copies import PROJECT
from instella.prove.processes import Finished, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
SAVE_AGAIN = Path(__file__).with_name("save_again.py")
# Two processes that have nothing in common but the files.
SAVED = (
    {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "<+14>-14", "OMP_NUM_THREADS": "1"},
    {"PYTHONHASHSEED": "2", "LC_ALL": "C.UTF-8", "TZ": "<-11>11", "OMP_NUM_THREADS": "4"},
)


def test_quick_proof_is_good(nano_run: Run, quick_proof: tuple[Finished, dict[str, Any]]) -> None:
    """Every row has the root of the shared run, which is none of them."""
    done, proof = quick_proof
    assert done.code == 0, done.out
    root = nano_run.root()
    assert re.fullmatch(r"[0-9a-f]{64}", root)
    for row in proof["rows"]:
        assert row["status"] in ("equal", "not run"), row["why"]
        if row["status"] == "not run":
            # CI is root and has all packages.
            assert "CI" not in os.environ and row["why"], row["name"]
            continue
        assert row["root"] == root
        made = Run(Path(row["folder"]), "nano")
        assert made.manifest_bytes() == nano_run.manifest_bytes()
        assert (made.results / "root").read_text(encoding="utf-8") == f"{root}\n"
    assert (nano_run.results / "root").read_text(encoding="utf-8") == f"{root}\n"


def test_every_stage_was_computed_once(
    nano_run: Run, quick_proof: tuple[Finished, dict[str, Any]]
) -> None:
    """In the shared run and in each row that starts cold and is not killed."""
    cold = [
        Run(Path(row["folder"]), "nano")
        for row in quick_proof[1]["rows"]
        if row["folder"] is not None
        and "killed" not in row["varied"]
        and "kept" not in row["varied"]
    ]
    assert cold
    for made in (nano_run, *cold):
        assert made.outcomes_since({}) == {stage: ["computed"] for stage in made.graph()}


def test_root_is_the_recorded_one(
    nano_run: Run, record_property: Callable[[str, object], None]
) -> None:
    assert_recorded(nano_run, record_property)


def _made_files(run: Run) -> Iterator[Path]:
    """Every file of every artifact except what sources took from elsewhere as it is."""
    for stage, node in run.graph().items():
        for name in run.manifest(stage).files:
            if node.kind != "source" or name in ("source.json", "rows.jsonl"):
                yield run.results / stage / name


def _saved_again(files: list[Path], folder: Path, number: int) -> list[bytes]:
    """The files' bytes as another process saves what it read of them."""
    folder.mkdir()
    (folder / "files.json").write_text(json.dumps([str(path) for path in files]), encoding="utf-8")
    command = [sys.executable, str(SAVE_AGAIN), str(folder / "files.json"), str(folder)]
    umask = (0o077, 0o002)[number]
    extra = {**SAVED[number], "PYTHONPATH": str(PROJECT)}
    done = run([*command, *["--reversed"] * number], PROJECT, 600.0, extra, umask)
    assert done.code == 0, done.err
    return [(folder / str(index)).read_bytes() for index in range(len(files))]


def test_every_file_is_canonical(nano_run: Run, tmp_path: Path) -> None:
    """Saved twice in differing conditions, each file has the published bytes."""
    files = list(_made_files(nano_run))
    for number in range(len(SAVED)):
        saved = _saved_again(files, tmp_path / str(number), number)
        for path, data in zip(files, saved, strict=True):
            assert data == path.read_bytes(), (path, SAVED[number])
    assert {path.suffix for path in files} == {".json", ".jsonl", ".npy", ".safetensors", ".md"}


def _texts(value: Any) -> Iterator[str]:
    """All texts among the values; names of fields come from the code."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def test_no_file_tells_where_when_or_by_whom(nano_run: Run) -> None:
    places = {
        str(path).encode()
        for path in (nano_run.folder, PROJECT, Path.home(), Path(sys.prefix), Path("/tmp"))
    }
    people = {getpass.getuser(), socket.gethostname()}
    for path in [*_made_files(nano_run), *nano_run.results.glob("*/manifest.json")]:
        data = path.read_bytes()
        for place in places - {b"/"}:
            assert not re.search(re.escape(place) + rb"[/\"]", data), (path, place)
        if path.suffix not in (".json", ".jsonl"):
            continue
        for line in data.splitlines():
            assert not TIME.search(line.decode("utf-8")), (path, line)
            assert people.isdisjoint(_texts(json.loads(line))), path
