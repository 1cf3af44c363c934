"""``root``, ``audit``, ``store`` and ``--version`` on a finished run of quick stages."""

import json
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from instella.artifacts.identity import PACKAGE_FOLDER, Toolchain
from instella.artifacts.job import Job
from instella.artifacts.lineage import sound_manifests
from instella.artifacts.runner import run_stage
from instella.artifacts.store import Store
from instella.artifacts.workspace import Workspace
from instella.cli import main
from instella.commands.version import version
from instella.prove.recorded import Recorded, recipe_hash
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe

NANO = PACKAGE_FOLDER.parent / "recipes" / "nano.yaml"


def name_itself(job: Job) -> None:
    (job.output / "stage.txt").write_text(job.stage)


def run_quickly(folder: Path, recipe_file: Path) -> dict[str, str]:
    """Every stage of a recipe with a function of one line; stage to content."""
    recipe = read_recipe(recipe_file)
    graph, store = build_graph(recipe), Store(folder / "store")
    place = folder / "results" / recipe.name
    workspace = Workspace(place, store, folder / "downloads", recipe_file.parent)
    toolchain = Toolchain.here(recipe.numerics, cache=store.root / "cache")
    for stage in graph.values():
        run_stage(stage, graph, workspace, toolchain, name_itself)
    return {name: item.content for name, item in sound_manifests(place, graph).items()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    shutil.copy(NANO, folder / "nano.yaml")
    shutil.copy(NANO.with_name("word_problems.jsonl"), folder)
    run_quickly(folder, folder / "nano.yaml")
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may alter."""
    return shutil.copytree(finished, tmp_path / "run")


def instella(folder: Path, *command: str, recipe: str = "nano.yaml") -> int:
    places = {"recipe": folder / recipe, "results": folder / "results", "store": folder / "store"}
    (folder / "config.yaml").write_text(
        json.dumps({key: str(path) for key, path in places.items()})
    )
    return main(["--config", str(folder / "config.yaml"), *command])


def edit(recipe: Path, old: str, new: str) -> None:
    text = recipe.read_text(encoding="utf-8")
    assert old in text
    recipe.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_root_of_an_edited_recipe_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert instella(run, "root") == 0
    first = capsys.readouterr().out
    edit(run / "nano.yaml", "# ", "# More words. ")
    assert instella(run, "root") == 0
    assert capsys.readouterr().out == first and re.fullmatch(r"[0-9a-f]{64}\n", first)
    edit(run / "nano.yaml", "init_seed: 6198", "init_seed: 6199")
    assert instella(run, "root") == 3
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "pretrain_stage1: setting" in err and "init_seed changed from 6198 to 6199" in err
    assert instella(run, "root", "--stages") == 3


def test_audit_compares_with_the_recorded_root(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, recorded = run / "nano.yaml", run / "nano.root"
    assert instella(run, "root", "--stages") == 0
    text = capsys.readouterr().out
    assert instella(run, "audit") == 0
    assert "recorded" not in capsys.readouterr().out
    recorded.write_text(text)
    assert instella(run, "audit") == 0
    assert f"root: equal to the recorded root, {recorded}\n" in capsys.readouterr().out
    contents = dict(line.split()[::-1] for line in text.splitlines()[2:])
    recorded.write_text(Recorded(recipe_hash(recipe), {**contents, "sft": "0" * 64}).to_text())
    report = run / "report.json"
    assert instella(run, "audit", "--json", str(report)) == 1
    said = capsys.readouterr().out
    assert "\nclean: " not in f"\n{said}" and "not clean: " in said
    assert json.loads(report.read_bytes())["clean"] is False
    assert f"root: NOT EQUAL to the recorded root, {recorded}: sft: expected content 0000" in said
    recorded.write_text(Recorded("0" * 64, {**contents, "sft": "0" * 64}).to_text())
    assert instella(run, "audit") == 0
    assert "which was recorded for other settings" in capsys.readouterr().out


def test_a_sample_that_was_not_run_is_not_clean(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no folder to compute in: that is no fault of the run, and it proves nothing."""
    monkeypatch.setattr(tempfile, "tempdir", str(run / "nowhere"))
    report = run / "report.json"
    assert instella(run, "audit", "--sample", "2", "--seed", "1", "--json", str(report)) == 3
    out, err = capsys.readouterr()
    assert out.count("not run: ") == 2 and "nowhere" in out
    assert not any(line.startswith("clean:") for line in out.splitlines())
    assert "2 of 2 units drawn were not run" in err
    found = json.loads(report.read_bytes())
    assert found["clean"] is False and found["faults"] == []
    assert instella(run, "audit", "--seed", "1") == 2
    assert "--sample" in capsys.readouterr().err


def test_a_machine_that_cannot_compute_is_told_first(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2_Usable")
    assert instella(run, "audit", "--sample", "1") == 2
    out, err = capsys.readouterr()
    assert out == "" and "GLIBC_TUNABLES" in err
    assert instella(run, "audit") == 0


def test_store_gc_keeps_what_results_and_recipe_reach(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert instella(run, "store", "gc", "--spare", "0") == 0
    # A copy has other inodes than those that the stamps are of.
    assert re.fullmatch(r"removed \d+ stamps: \d+ bytes\n", capsys.readouterr().out)
    before = sorted(run.rglob("*"))
    assert instella(run, "store", "gc", "--spare", "0") == 0
    assert capsys.readouterr().out == "removed nothing: everything is reached, in work or young\n"
    assert sorted(run.rglob("*")) == before
    shutil.rmtree(run / "results" / "nano" / "sft")
    (run / "results" / "nano" / "journal" / "sft.jsonl").unlink()
    assert instella(run, "store", "gc", "--spare", "0") == 0
    assert "removed nothing" in capsys.readouterr().out, "the recipe would take it from the store"


def test_store_gc_of_a_changed_recipe(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run / "nano.yaml", "init_seed: 6198", "init_seed: 6199")
    run_quickly(run, run / "nano.yaml")
    assert instella(run, "store", "gc", "--dry-run") == 0
    assert "would remove nothing" in capsys.readouterr().out
    assert instella(run, "store", "gc", "--dry-run", "--spare", "0") == 0
    planned = capsys.readouterr().out.splitlines()
    assert planned[-1].startswith("would remove 1 record"), planned
    assert planned[0].startswith("record: actions/") and planned[0].endswith(" bytes")
    assert instella(run, "store", "gc", "--spare", "0") == 0
    assert capsys.readouterr().out == planned[-1].replace("would remove", "removed") + "\n"
    assert instella(run, "root") == 0 and instella(run, "audit") == 0


def test_store_gc_refuses_to_guess(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = run / "others"
    shutil.move(run / "results", other)
    assert instella(run, "store", "gc") == 2
    assert "no results there, so everything would be removed" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        instella(run, "store", "gc", "--results", str(other), "--spare", "x")
    assert "is not a number of hours" in capsys.readouterr().err
    shutil.copytree(other, run / "results")
    Store(run / "store").note_results(other / "nano")
    assert instella(run, "store", "gc") == 2
    assert f"give --results {other} as well" in capsys.readouterr().err
    both = ["--results", str(other), "--results", str(run / "results")]
    assert instella(run, "store", "gc", *both) == 0
    (other / "nano" / "sft" / "manifest.json").unlink()
    (other / "nano" / "sft" / "manifest.json").write_text("{")
    assert instella(run, "store", "gc", *both) == 4
    assert "sft/manifest.json: not canonical JSON" in capsys.readouterr().err


def test_store_verify(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert instella(run, "store", "verify") == 0
    assert re.fullmatch(r"sound: \d+ objects\n", capsys.readouterr().out)
    (path,) = [p for p in (run / "store" / "sha256").glob("*/*") if p.read_text() == "sft"]
    path.chmod(0o644)
    path.write_text("SFT")
    assert instella(run, "store", "verify") == 4
    out, err = capsys.readouterr()
    assert out.startswith(f"sha256/{path.parent.name}/{path.name}: found sha256 ")
    assert "; of sft; read by baseline" in out or "; of sft; read by dpo" in out
    assert err.count("\n") == 1 and ": 1 of " in err


def test_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"instella {version()}\n"
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "9.8.7"\n')
    assert version(tmp_path) == "9.8.7"
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert version(tmp_path) == "9.8.7"
    (git / "packed-refs").write_text(
        f"# pack-refs\n{'a' * 40} refs/heads/mainly\n{'b' * 40} refs/heads/main\n"
    )
    assert version(tmp_path) == f"9.8.7 (commit {'b' * 9})"
    (git / "refs/heads").mkdir(parents=True)
    (git / "refs/heads/main").write_text("c" * 40 + "\n")
    assert version(tmp_path) == f"9.8.7 (commit {'c' * 9})"
    (git / "HEAD").write_text("d" * 40 + "\n")
    assert version(tmp_path) == f"9.8.7 (commit {'d' * 9})"
    (git / "HEAD").write_text("ref: ../../secret\n")
    assert version(tmp_path) == "9.8.7"
