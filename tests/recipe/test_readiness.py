"""What `instella doctor` says of a recipe's own files before a run."""

import shutil
from pathlib import Path

from instella.recipe.reader import read_recipe
from instella.recipe.readiness import absent_files

SMALL = Path(__file__).parent / "small.yaml"


def test_a_file_source_without_its_file_is_named(tmp_path: Path) -> None:
    recipe = read_recipe(SMALL)
    assert absent_files(recipe, SMALL) == []
    (line,) = absent_files(recipe, tmp_path / "small.yaml")
    assert line == (
        f"source own: {tmp_path / 'small.yaml'} is not there; put the file in its place"
    )
    shutil.copy(SMALL, tmp_path)
    assert absent_files(recipe, tmp_path / "small.yaml") == []
