"""Helpers of these tests: small real wheels, packed rows, a hub on the loopback device."""

import gzip
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from instella.canonical import sha256_file
from instella.data.sources import hub_trouble

from .hub_server import Hub, serving


@dataclass(frozen=True)
class Wheel:
    """A wheel that pip accepts, and its pin."""

    path: Path
    sha256: str


@pytest.fixture
def make_wheel(tmp_path: Path) -> Callable[..., Wheel]:
    """Makes ``tiny_data-1.0-py3-none-any.whl`` with the given members."""

    def make(members: dict[str, bytes], name: str = "tiny_data") -> Wheel:
        folder = tmp_path / "registry"
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}-1.0-py3-none-any.whl"
        info = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for member, data in members.items():
                file.writestr(member, data)
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Python: >=99\n"
            file.writestr(f"{info}/METADATA", text)
            wheel = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            file.writestr(f"{info}/WHEEL", wheel)
            file.writestr(f"{info}/RECORD", "")
        return Wheel(path, sha256_file(path))

    return make


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lets pip see nothing but the folder ``registry``."""
    folder = tmp_path / "registry"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def requests_file(path: Path, rows: list[Any]) -> None:
    """Write rows as the evaluation wheels do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that this process and its children take for the hub; nobody is logged in."""
    from huggingface_hub import constants

    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "home" / "token"))
    monkeypatch.setattr(hub_trouble, "WAIT_SECONDS", (0.01, 0.02, 0.02))
    with serving(Hub()) as state:
        monkeypatch.setenv("HF_ENDPOINT", state.url)
        yield state
