"""Where an image is built, and what a full disk leaves there."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from instella.containers import build as building
from instella.containers.images import read_images
from instella.errors import BadUse


def test_a_colon_in_the_path_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "a:b" / "images"
    with pytest.raises(BadUse, match="to its loader a colon ends a path; set downloads in"):
        building.build("cpu", tmp_path / "a:b", folder, print)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_at_the_end_leaves_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, folder = tmp_path / "place", tmp_path / "images"
    place.mkdir()
    folder.mkdir()
    image = read_images()["cpu"]

    def archive(made: Any, assembly: Any, name: str, epoch: int, path: Path) -> SimpleNamespace:
        path.write_bytes(b"an archive")
        return SimpleNamespace(layers=(), manifest=image.manifest, config=image.config)

    def full(image: Any) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(building, "read_assembly", lambda file: SimpleNamespace(layers=()))
    monkeypatch.setattr(building.layers, "write_archive", archive)
    monkeypatch.setattr(building.policy, "require_clean", lambda archive, words: None)
    with monkeypatch.context() as filled:
        filled.setattr(building.sbom, "cyclonedx", full)
        with pytest.raises(OSError, match="No space"):
            building._finish("cpu", (), 0, place, folder)
    assert list(folder.iterdir()) == []
    made = building._finish("cpu", (), 0, place, folder)
    assert sorted(folder.iterdir()) == sorted([made.archive, made.parts])
