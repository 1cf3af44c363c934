"""With a lock the files are those of a repository's commit, and the recipe says so."""

from pathlib import Path
from typing import Any

import pytest
from data_sources.conftest import hub  # noqa: F401
from data_sources.hub_help import lock_of, write_lock
from data_sources.hub_server import Hub

from instella import cli
from instella.recipe.settings import Import

from .published import Place, change_json


@pytest.fixture
def repository(hub: Hub, folder: Path) -> Hub:  # noqa: F811
    """The hub serves the folder as a model."""
    hub.kind, hub.name = "models", "amd/Instella-3B-Math"
    hub.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return hub


@pytest.fixture
def lock(repository: Hub, tmp_path: Path) -> Path:
    return write_lock(tmp_path / "lock.json", lock_of(repository))


def call(place: Place, *arguments: Any) -> int:
    # Downloads go where the test's other files are.
    config = place.folder / "config.yaml"
    config.write_text(
        f"recipe: {place.recipe_file}\nresults: {place.folder}/results\n"
        f"store: {place.folder}/store\ndownloads: {place.folder}/downloads\n"
    )
    return cli.main(["import", *map(str, arguments), "--config", str(config)])


def imported(place: Place) -> Import:
    (item,) = (place.recipe.imports or {}).values()
    return item


def test_a_locked_repository_is_fetched(
    place: Place, folder: Path, lock: Path, repository: Hub
) -> None:
    assert call(place, "--lock", lock, "--as", "grpo3") == 0
    fetched = imported(place)
    assert (fetched.repository, fetched.revision) == (repository.name, repository.commit)
    asked = {request.path for request in repository.log}
    assert "config.json" in asked and not any(path.endswith(".py") for path in asked)
    assert not list((place.folder / "downloads").glob(".import-*"))
    assert call(place, folder, "--as", "grpo3") == 0
    assert imported(place) == fetched, "the same bytes come from the same place"
    assert call(place, folder, "--lock", lock, "--as", "grpo3") == 0
    assert imported(place) == fetched


def test_a_folder_that_is_not_the_locks(
    place: Place, folder: Path, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_json(folder / "config.json", use_cache=False)
    assert call(place, folder, "--lock", lock, "--as", "sft") == 4
    assert "config.json: SHA-256 is" in capsys.readouterr().err
    assert place.recipe.imports is None


def test_a_file_that_the_lock_lacks(
    place: Place, folder: Path, lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert call(place, folder, "--lock", lock, "--as", "sft") == 4
    assert "has no such file" in capsys.readouterr().err
