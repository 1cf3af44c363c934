"""Two runs with nothing in common but the recipe make the same bytes, and canonical ones."""

import getpass
import json
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_helpers import Run
from safetensors.torch import load_file

from benchmarks.harness import PROJECT
from instella.canonical import json_bytes, read_json, write_npy, write_safetensors

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")


def test_two_runs_have_the_same_root(nano_run: Run, other_nano_run: Run) -> None:
    """Other folder, store, cores, ranks, locale and time zone."""
    root = nano_run.root()
    assert re.fullmatch(r"[0-9a-f]{64}", root)
    assert other_nano_run.root() == root
    assert other_nano_run.manifest_bytes() == nano_run.manifest_bytes()
    assert (nano_run.results / "root").read_text(encoding="utf-8") == f"{root}\n"


def test_every_stage_was_computed_once(nano_run: Run, other_nano_run: Run) -> None:
    for run in (nano_run, other_nano_run):
        outcomes = run.outcomes_since({})
        assert outcomes == {stage: ["computed"] for stage in run.graph()}


def _made_files(run: Run) -> Iterator[Path]:
    """Every file of every artifact except what sources took from elsewhere as it is."""
    for stage, node in run.graph().items():
        for name in run.manifest(stage).files:
            if node.kind != "source" or name in ("source.json", "rows.jsonl"):
                yield run.results / stage / name


def _written_again(path: Path, scratch: Path) -> bytes:
    """The bytes the canonical writers give for what a file holds."""
    if path.suffix == ".json":
        return json_bytes(read_json(path))
    if path.suffix == ".jsonl":
        lines = path.read_bytes().splitlines(keepends=True)
        return b"".join(json_bytes(json.loads(line)) for line in lines)
    if path.suffix == ".npy":
        write_npy(scratch, np.load(path, allow_pickle=False))
    elif path.suffix == ".safetensors":
        write_safetensors(scratch, load_file(path))
    else:
        assert path.name == "table.md", f"{path}: a kind of file that this test does not know"
        text = path.read_text(encoding="utf-8")
        return "".join(f"{line}\n" for line in text.split("\n")[:-1]).encode("utf-8")
    return scratch.read_bytes()


def test_every_file_is_canonical(nano_run: Run, tmp_path: Path) -> None:
    kinds = set()
    for path in _made_files(nano_run):
        assert _written_again(path, tmp_path / "again") == path.read_bytes(), path
        kinds.add(path.suffix)
    assert kinds == {".json", ".jsonl", ".npy", ".safetensors", ".md"}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
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
            for text in _texts(json.loads(line)):
                assert text not in people, path
                assert not TIME.search(text), (path, text)
