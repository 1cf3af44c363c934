"""podman itself, with an image of one program: what the kit asks it, and what it answers.

Stages run in it where docker does not start; see conftest.py.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from engine_helpers import NoEngine, Podman, private_engine, small_image

from instella.containers import loading
from instella.containers.engines import require_podman_image, run_plan
from instella.containers.images import Image
from instella.containers.walls import plan_command
from instella.errors import BadUse, KitError
from instella.progress import Reporter
from instella.recipe.settings import Container


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Image, Path]:
    return small_image(tmp_path_factory.mktemp("program"))


@pytest.fixture
def podman(monkeypatch: pytest.MonkeyPatch) -> Iterator[Podman]:
    try:
        with private_engine(Podman) as engine:
            assert isinstance(engine, Podman)
            for name, value in engine.variables().items():
                monkeypatch.setenv(name, value)
            yield engine
    except NoEngine as reason:
        pytest.skip(str(reason))


def test_an_image_is_loaded_and_runs(podman: Podman, archive: tuple[Image, Path]) -> None:
    image, file = archive
    with pytest.raises(BadUse, match="podman has no image cpu"):
        require_podman_image(image)
    loading.load(image, file, "podman")
    require_podman_image(image)
    container = Container(engine="podman")
    good = plan_command("instella-good", image, container, ("/bin/program", "--version"))
    run_plan(good, "podman", Reporter("toy"), file.parent)
    bad = plan_command("instella-bad", image, container, ("/bin/program", "--no-such-option"))
    with pytest.raises(KitError, match=r"^podman ended with status 64"):
        run_plan(bad, "podman", Reporter("toy"), file.parent)
    assert podman.containers() == []


def test_an_image_with_other_layers_is_none(podman: Podman, archive: tuple[Image, Path]) -> None:
    image, file = archive
    for layers in ((), image.layers * 2):
        with pytest.raises(BadUse, match="podman has no image cpu"):
            loading.load(replace(image, layers=layers), file, "podman")


def test_podman_that_fails_is_not_podman_without_the_image(
    podman: Podman, archive: tuple[Image, Path]
) -> None:
    storage = podman.folder / "storage.conf"
    storage.write_text(storage.read_text().replace(f"{podman.folder}/data", "/proc/none"))
    with pytest.raises(KitError, match=r"^podman: .*/proc/none") as caught:
        require_podman_image(archive[0])
    assert type(caught.value) is KitError
    with pytest.raises(KitError, match=r"^podman load: .*/proc/none"):
        loading.load(*archive, "podman")
