"""The command line: exit codes, one line for each error, and a real stage end to end."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from instella import cli
from instella.artifacts.identity import PACKAGE_FOLDER
from instella.commands import run

ROOT = PACKAGE_FOLDER.parent


def instella(*arguments: object, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "instella", *map(str, arguments)]
    environment = {**os.environ, **env}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def options(folder: Path) -> list[object]:
    """The tiny recipe with a short generated source, in a folder of its own."""
    recipe = (ROOT / "recipes" / "tiny.yaml").read_text().replace("size: 60000", "size: 20")
    (folder / "tiny.yaml").write_text(recipe)
    return [
        "--recipe", folder / "tiny.yaml",
        "--results", folder / "results", "--store", folder / "store",
    ]  # fmt: skip


@pytest.fixture
def places(tmp_path: Path) -> list[object]:
    return options(tmp_path)


def one_line(done: "subprocess.CompletedProcess[str]", code: int, *parts: str) -> None:
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("instella: ") and done.stderr.count("\n") == 1, done.stderr
    for part in parts:
        assert part in done.stderr


def test_a_real_stage_twice_then_damaged(places: list[object], tmp_path: Path) -> None:
    log = tmp_path / "logs" / "deep" / "log.txt"
    done = instella("stage", "source_sums", *places, "--log", log, OMP_NUM_THREADS="7")
    assert done.returncode == 0, done.stderr
    assert "source_sums: computed" in log.read_text()
    manifest = tmp_path / "results" / "tiny" / "source_sums" / "manifest.json"
    first = manifest.read_bytes()
    manifest.unlink()
    again = instella(*places, "stage", "source_sums")
    assert again.returncode == 0 and "source_sums: hit" in again.stderr
    assert manifest.read_bytes() == first
    assert json.loads(first)["identity"]["numerics"]["pins"]["OMP_NUM_THREADS"] == "1"
    why = instella("why", "source_sums", *places)
    assert why.returncode == 0 and why.stdout.startswith("source_sums would not run: ")
    listed = instella("stages", *places).stdout
    assert [line.split()[:3] for line in listed.splitlines() if " done" in line] == [
        ["source_sums", "source", "done"]
    ]
    (manifest.parent / "rows.jsonl").unlink()
    audited = instella("audit", *places)
    assert audited.returncode == 1
    assert "source_sums: view: rows.jsonl: expected sha256" in audited.stdout


def test_incomplete_run(places: list[object], tmp_path: Path) -> None:
    incomplete = instella("root", *places)
    one_line(incomplete, 3, "stages have no result: source_olmo, ", " more; run the recipe to its")
    assert "evaluate_grpo3" not in incomplete.stderr
    faults = tmp_path / "faults.json"
    audited = instella("audit", *places, "--json", faults)
    one_line(audited, 3, "no run of tiny is there", "--results")
    assert audited.stdout == ""
    assert {fault["kind"] for fault in json.loads(faults.read_bytes())["faults"]} == {
        "missing stage"
    }
    one_line(instella("stage", "tokenizer", *places), 3, "tokenizer: needs source_")
    assert instella("stage", "source_sums", *places).returncode == 0
    begun = instella("audit", *places)
    one_line(begun, 3, "run the recipe to its end")
    (line,) = [line for line in begun.stdout.splitlines() if "missing stage" in line]
    assert re.match(r"\d+ stages \(.* and \d+ more\): missing stage: manifest.json: ", line)


def test_a_name_does_not_steer_the_terminal(tmp_path: Path) -> None:
    odd = tmp_path / "\x1b[2J\u202e.yaml"
    done = instella("--recipe", odd, "recipe", "check")
    one_line(done, 2)
    assert done.stderr.rstrip("\n").isprintable()


def test_damaged_manifest_ends_with_4(places: list[object], tmp_path: Path) -> None:
    names = [line.split()[0] for line in instella("stages", *places).stdout.splitlines()]
    for name in names:
        folder = tmp_path / "results" / "tiny" / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}\n")
    one_line(instella("root", *places), 4, "manifest.json: not a manifest")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("bogus",), "invalid choice: 'bogus'"),
        ((), "required"),
        (("stage",), "STAGE"),
        (("stage", "sftt"), "did you mean sft"),
        (("why", "zzzz"), "see instella stages"),
        (("stages", "--recipe", "nowhere.yaml"), "nowhere.yaml"),
        (("stages", "--config", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_bad_use_is_one_line_and_ends_with_2(arguments: tuple[str, ...], part: str) -> None:
    one_line(instella(*arguments), 2, part)


def test_help_is_light() -> None:
    script = (
        "import sys\nfrom instella.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'torch', 'numpy', 'transformers', 'tokenizers', 'datasets', 'sympy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "why" in done.stdout


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KeyboardInterrupt(), 130, ""),
        (
            ValueError("odd\nvalue"),
            1,
            "instella: ValueError: odd value; rerun with --debug for the place\n",
        ),
    ],
)
def test_unexpected_ends(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    text: str,
) -> None:
    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr(run, "run_list", fail)
    assert cli.main(["stages"]) == code
    assert capsys.readouterr().err == text
    if text:
        assert cli.main(["stages", "--debug"]) == code
        assert "Traceback" in capsys.readouterr().err


def test_a_closed_pipe_is_quiet() -> None:
    command = f"set -o pipefail; {sys.executable} -m instella recipe show | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == "" and done.stdout.count("\n") == 1
