"""What makes Snakemake run a stage again, and what does not."""

import shutil
from pathlib import Path

import pytest

from .conftest import HELDOUT, Tree

NOTHING = "Nothing to be done"


@pytest.fixture
def tree(heldout_tree: Tree, tmp_path: Path) -> Tree:
    """A copy of the finished tree, in another folder with a blank in its name."""
    folder = tmp_path / "eine Kopie"
    # Without times, as a plain copy does, so that inputs may look newer than outputs.
    shutil.copytree(heldout_tree.folder, folder, copy_function=shutil.copyfile)
    return Tree(folder)


def faults(text: str) -> list[str]:
    """Lines about altered or missing bytes."""
    return [line for line in text.splitlines() if line.endswith("to be made again")]


def test_copying_touching_comments_and_placement_run_nothing(tree: Tree) -> None:
    for path in sorted(tree.folder.glob("results/tiny/*/manifest.json"), reverse=True):
        path.touch()
    with (tree.folder / "instella/stages/heldout.py").open("a", encoding="utf-8") as file:
        file.write("# more words\n")
    done = tree.snakemake(HELDOUT, "--config", "ranks=2", f"store={tree.folder}/store")
    assert NOTHING in done.stdout, done.stdout


def test_changed_code_runs_its_stage(tree: Tree) -> None:
    path = tree.folder / "instella/stages/heldout.py"
    path.write_text(path.read_text(encoding="utf-8").replace("a table", "b table"))
    done = tree.snakemake("-n", HELDOUT)
    assert "rule heldout:" in done.stdout
    assert "rule source:" not in done.stdout


def test_a_changed_setting_runs_its_stage(tree: Tree) -> None:
    recipe = tree.folder / "recipes/tiny.yaml"
    text = recipe.read_text(encoding="utf-8")
    assert "max_items: " in text
    recipe.write_text(text.replace("max_items: ", "max_items: 1", 1), encoding="utf-8")
    done = tree.snakemake("-n", HELDOUT)
    assert "rule heldout:" in done.stdout and "Params have changed" in done.stdout


def test_a_changed_setting_is_seen_where_snakemake_has_no_notes(tree: Tree) -> None:
    # Without notes the copy's mixed-up times run the stage once.
    for _ in range(2):
        shutil.rmtree(tree.folder / ".snakemake" / "metadata")
        done = tree.snakemake(HELDOUT)
    assert NOTHING in done.stdout
    recipe = tree.folder / "recipes/tiny.yaml"
    text = recipe.read_text(encoding="utf-8")
    recipe.write_text(text.replace("max_items: ", "max_items: 1", 1))
    planned = tree.snakemake("-n", HELDOUT).stdout
    (line,) = faults(planned)
    assert line.startswith("heldout: differs from this tree: settings")
    done = tree.snakemake(HELDOUT)
    assert done.returncode == 0 and "rule heldout:" in done.stdout, done.stdout


def test_altered_bytes_are_named_and_made_again(tree: Tree) -> None:
    manifest = (tree.folder / HELDOUT).read_bytes()
    damage(tree)
    planned = tree.snakemake("-n", HELDOUT)
    assert len(faults(planned.stdout)) == 1 and "heldout" in faults(planned.stdout)[0]
    assert (tree.folder / HELDOUT).exists(), "a dry run changes nothing"
    done = tree.snakemake(HELDOUT)
    assert done.returncode == 0, done.stdout
    assert len(faults(done.stdout)) == 1
    assert (tree.folder / HELDOUT).read_bytes() == manifest
    made = (tree.folder / "results/tiny/heldout/made.json").read_bytes()
    assert made.startswith(b'{"inputs"')
    again = tree.snakemake(HELDOUT)
    assert NOTHING in again.stdout and not faults(again.stdout)


def test_a_folder_written_in_two_ways_is_one(tree: Tree) -> None:
    done = tree.snakemake("-n", "--config", "results=.//results/", "--", HELDOUT)
    assert done.returncode == 0 and NOTHING in done.stdout, done.stdout
    assert "redundant" not in done.stdout


@pytest.mark.parametrize("options", [["--lint"], ["--summary"], ["--touch", HELDOUT]])
def test_other_modes_leave_altered_results_alone(tree: Tree, options: list[str]) -> None:
    damage(tree)
    done = tree.snakemake(*options)
    assert not faults(done.stdout)
    assert (tree.folder / HELDOUT).exists()


def damage(tree: Tree) -> None:
    """Alter a file of the held-out items in the store and in the results."""
    for path in (
        *tree.folder.glob("store/sha256/*/*"),
        *tree.folder.glob("results/tiny/heldout/*"),
    ):
        if b'"heldout"' in path.read_bytes() and path.name != "manifest.json":
            path.chmod(0o644)
            path.write_bytes(b"altered")


def test_recipes_lie_side_by_side(tree: Tree) -> None:
    recipe = tree.folder / "recipes/other.yaml"
    text = (tree.folder / "recipes/tiny.yaml").read_text(encoding="utf-8")
    recipe.write_text(text.replace("name: tiny", "name: other", 1), encoding="utf-8")
    target = "results/other/source_sums/manifest.json"
    done = tree.snakemake(target, "--config", "recipe=recipes/other.yaml")
    assert done.returncode == 0, done.stdout
    assert (tree.folder / target).exists() and (tree.folder / HELDOUT).exists()
    assert "source_sums: hit" in done.stdout, "the same stage comes from the store"
