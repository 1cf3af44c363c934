"""The table and the verdict: which rows are well, and what is said of the others."""

from pathlib import Path

import pytest

from instella.artifacts.manifest import Entry, Manifest
from instella.cli import main
from instella.prove.rows import DIFFERS, FAILED, NOT_RUN, Row
from instella.prove.table import judgement, table


def _row(name: str, digit: str = "1", status: str = "equal", why: str = "") -> Row:
    manifest = Manifest("toy", "toy", "computed", {}, {"file": Entry(digit * 64, 1)})
    manifests = {"toy": manifest} if status in ("equal", DIFFERS) else {}
    return Row(name, f"what {name} varies", status, why, 12.3, None, manifests)


def test_equal_rows_are_good() -> None:
    rows = [_row("a"), _row("b"), _row("c", status=NOT_RUN, why="needs root")]
    verdict = judgement(rows, None)
    assert verdict.good
    assert verdict.text == "equal: 2 rows, 1 not run; no recorded root to compare with"
    assert judgement(rows, rows[0].contents).text.endswith("and equal to the recorded root")


def test_another_root_than_the_recorded_is_not() -> None:
    verdict = judgement([_row("a")], _row("b", "2").contents)
    assert not verdict.good
    assert verdict.text.startswith("NOT EQUAL to the recorded root: toy: expected content ")


@pytest.mark.parametrize("status", [DIFFERS, FAILED])
def test_one_bad_row_is_enough(status: str) -> None:
    verdict = judgement([_row("a"), _row("b", "2", status, "toy: file")], None)
    assert not verdict.good
    assert verdict.text == "NOT EQUAL: b: toy: file"


def test_nothing_run_proves_nothing() -> None:
    assert not judgement([_row("a", status=NOT_RUN, why="needs root")], None).good


def test_table_shows_root_status_and_reasons() -> None:
    rows = [_row("a"), _row("much longer", "2", DIFFERS, "toy: file"), _row("c", status=NOT_RUN)]
    lines = table(rows).splitlines()
    root = rows[0].root
    assert root is not None
    assert lines[1].split() == ["a", root[:16], "equal", "12", "what", "a", "varies"]
    assert lines[3].split()[:4] == ["c", "-", "not", "run"]
    assert lines[4:] == ["much longer: DIFFERS: toy: file"]
    assert len({line.index("what") for line in lines[1:4]}) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rows", "moon phase"], "moon phase"),
        (["--store", "store"], "store of its own"),
        (["--recipe", "recipes/none.yaml"], "recipes/none.yaml"),
        (["--keep", "."], "not there yet"),
        (["--keep", "nowhere/rows"], "nowhere: no such folder for prove --keep"),
        (["--timeout", "-1"], "gives a row no time"),
        (["--timeout", "nan"], "gives a row no time"),
    ],
)
def test_bad_use_is_one_line(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1


def test_a_broken_recorded_root_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "nano.yaml"
    recipe.write_bytes(Path("recipes/nano.yaml").read_bytes())
    recipe.with_suffix(".root").write_text("0" * 64)
    assert main(["prove", "--recipe", str(recipe)]) == 2
    assert "nano.root:2: " in capsys.readouterr().err
