"""One recipe with its tokenizer for all tests of a session, copied for each."""

import shutil
from pathlib import Path

import pytest

from .published import Place, make_folder, make_place


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Path]:
    """The place and a folder that fits it; never altered."""
    base = tmp_path_factory.mktemp("made")
    place = make_place(base / "place")
    return place, make_folder(base / "model", place)


@pytest.fixture
def place(made: tuple[Place, Path], tmp_path: Path) -> Place:
    return Place(shutil.copytree(made[0].folder, tmp_path / "place"))


@pytest.fixture
def folder(made: tuple[Place, Path], tmp_path: Path) -> Path:
    return shutil.copytree(made[1], tmp_path / "Instella Math")
