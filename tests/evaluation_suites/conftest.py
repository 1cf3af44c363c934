"""What the tests of suites, verdicts and games share."""

from pathlib import Path

import pytest
from suites_helpers import FOLDER, RECIPE, SHARED

from instella.evaluation.ours import Measured, read_measured
from instella.evaluation.suites import Suite, read_suites
from instella.recipe.published import Published, read_published
from instella.recipe.reader import read_recipe


@pytest.fixture(scope="session")
def published() -> Published:
    read = read_published(read_recipe(RECIPE), RECIPE)
    assert read is not None
    return read


@pytest.fixture(scope="session")
def suites() -> dict[str, Suite]:
    return read_suites(FOLDER)


@pytest.fixture(scope="session")
def measured() -> Measured:
    return read_measured(FOLDER)


@pytest.fixture
def eval_folder() -> Path:
    folder = SHARED / "data" / "eval"
    if not folder.is_dir():
        pytest.skip("needs ../shared/data/eval")
    return folder
