"""A recipe that cannot come to its end is refused before any job starts."""

from pathlib import Path

import pytest

from .conftest import Tree, copy_tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return copy_tree(tmp_path / "kit")


def test_the_published_recipe_is_refused_in_one_line(tree: Tree) -> None:
    done = tree.snakemake("--cores", "1", "--config", "recipe=recipes/instella-3b.yaml")
    assert done.returncode == 2
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Error")]
    assert line.startswith("Error: recipes/instella-3b.yaml: this recipe can be read, checked,")
    assert "hub sources have no revision or no lock file (olmoe_dclm, " in line
    assert "numerics class gfx942 needs a GPU and there is no" in line
    assert "localrule" not in done.stdout and "Traceback" not in done.stdout
    assert not (tree.folder / "results").exists()
    assert not list((tree.folder / ".snakemake" / "locks").iterdir())


def test_one_source_may_still_be_asked_for(tree: Tree) -> None:
    target = "results/instella-3b/source_deepmath/manifest.json"
    done = tree.snakemake(target, "--cores", "1", "--config", "recipe=recipes/instella-3b.yaml")
    assert done.returncode != 0
    assert "source_deepmath" in done.stdout and "no revision of zwhe99/DeepMath-103K" in done.stdout
