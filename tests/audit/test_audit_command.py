"""The commands as a user calls them, on one real stage of a real recipe."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from instella.artifacts.store import Store
from instella.canonical import json_bytes
from instella.prove.copies import PROJECT


def instella(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "instella", *map(str, arguments)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """nano with a short generated source, which has been made."""
    folder = tmp_path_factory.mktemp("command")
    recipe = (PROJECT / "recipes" / "nano.yaml").read_text(encoding="utf-8")
    (folder / "nano.yaml").write_text(recipe.replace("size: 8000", "size: 20"), encoding="utf-8")
    options: list[object] = [
        "--recipe", folder / "nano.yaml", "--results", folder / "results",
        "--store", folder / "store",
    ]  # fmt: skip
    done = instella("stage", "source_sums", *options)
    assert done.returncode == 0, done.stderr
    return options


def test_a_sample_of_an_unfinished_run(places: list[object], tmp_path: Path) -> None:
    """The one stage that is there is made again, equal; the others are missing: status 3."""
    report = tmp_path / "report.json"
    done = instella("audit", *places, "--sample", 5, "--seed", 7, "--jobs", 2, "--json", report)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "equal: source_sums" in done.stdout
    assert "sample of seed 7: 1 of 1 units computed again, 1 equal" in done.stdout
    found = json.loads(report.read_bytes())
    assert report.read_bytes() == json_bytes(found)
    assert found["sample"]["units"] == [
        {
            "detail": "",
            "end": None,
            "first": 0,
            "stage": "source_sums",
            "start": None,
            "state": "equal",
        }
    ]
    assert found["sample"]["probabilities"] == [{"probability": 1.0, "share": 1.0, "units": 1}]
    assert found["licences"]["source_sums"] == "Apache-2.0"
    assert str(PROJECT) not in report.read_text() and found["read"]["files"] == 2


def test_a_chain_rewritten_whole_is_found_by_computing_it_again(
    places: list[object], tmp_path: Path
) -> None:
    """Bytes, manifest, record and journal fit each other: reading finds nothing, computing does."""
    from benchmarks.plants import rewrite_file

    base = Path(str(places[3])).parent
    for name in ("results", "store"):
        subprocess.run(["cp", "-r", base / name, tmp_path / name], check=True)
    results, store = tmp_path / "results" / "nano", Store(tmp_path / "store")
    data = (results / "source_sums" / "rows.jsonl").read_bytes().replace(b"1", b"2", 1)
    rewrite_file(results, "source_sums", "rows.jsonl", data, store)
    manifest = (results / "source_sums" / "manifest.json").read_bytes()
    (record,) = (store.root / "actions").iterdir()
    record.write_bytes(manifest)
    journal = results / "journal" / "source_sums.jsonl"
    line = json.loads(journal.read_bytes()) | {"content": json.loads(manifest)["content"]}
    journal.write_bytes(json_bytes(line))
    forged = [*places[:2], "--results", tmp_path / "results", "--store", store.root]
    assert instella("audit", *forged).returncode == 3
    (results / "heldout").mkdir()
    (results / "heldout" / "manifest.json").write_text("{")
    report = tmp_path / "report.json"
    done = instella("audit", *forged, "--sample", 1, "--seed", 1, "--json", report)
    assert done.returncode == 1
    assert f"{tmp_path}/results/nano/heldout/manifest.json: not canonical JSON" in done.stdout
    assert "RESULTS/heldout/manifest.json: not canonical JSON" in report.read_text()
    assert str(tmp_path) not in report.read_text()
    assert "source_sums: re-execution: rows.jsonl: expected sha256 " in done.stdout
    assert "; read by heldout, " in done.stdout


def test_names_that_are_no_text(places: list[object], tmp_path: Path) -> None:
    """Not UTF-8, with a line end, steering the terminal: each is named, here and in JSON."""
    folder = Path(str(places[3])) / "nano" / "source_sums"
    names = [b"\xff\xfe", b"a\nclean: 46 stages", b"\x1b[2J", "\u202e\x9b".encode()]
    paths = [Path(os.fsdecode(os.fsencode(folder) + b"/" + name)) for name in names]
    report = tmp_path / "report.json"
    for path in paths:
        path.write_bytes(b"1")
    try:
        done = instella("audit", *places, "--json", report)
    finally:
        for path in paths:
            path.unlink()
    assert done.returncode == 1 and done.stderr == ""
    assert all(line.isprintable() for line in done.stdout.split("\n"))
    views = [item for item in json.loads(report.read_bytes())["faults"] if item["kind"] == "view"]
    assert len(views) == done.stdout.count("source_sums: view: '") == 4


def test_a_report_that_cannot_be_written_is_told_first(
    places: list[object], tmp_path: Path
) -> None:
    for place in (tmp_path, tmp_path / "absent" / "report.json"):
        done = instella("audit", *places, "--json", place)
        assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", [("--sample", 0), ("--jobs", -1), ("--seed", 7)])
def test_bad_options_are_one_line(places: list[object], option: tuple[str, int]) -> None:
    done = instella("audit", *places, *option)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
