"""The published recipe and what is published about it, read once."""

from pathlib import Path

import pytest

from instella.recipe.published import Published, read_published
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Recipe

FULL = Path(__file__).resolve().parents[2] / "recipes" / "instella-3b.yaml"


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return read_recipe(FULL)


@pytest.fixture(scope="session")
def published(recipe: Recipe) -> Published:
    found = read_published(recipe, FULL)
    assert found is not None
    return found
