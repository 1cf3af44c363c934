"""Helpers of these tests: small real wheels, packed rows, a hub on the loopback device."""

import gzip
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from instella.canonical import sha256_file


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


@dataclass
class Hub:
    """A server that speaks the part of the hub's API that one file needs."""

    url: str
    commit: str
    files: dict[str, bytes]
    busy: dict[str, int] = field(default_factory=dict)
    gets: list[str] = field(default_factory=list)


@pytest.fixture
def hub() -> Iterator[Hub]:
    """``busy[name]`` GETs of a file answer 503 before the body comes."""
    state = Hub("", "0123456789abcdef0123456789abcdef01234567", {})

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            name = self.path.partition(f"/resolve/{state.commit}/")[2]
            data = state.files.get(name)
            if data is None:
                self.reply(404, b"")
                return
            if body:
                state.gets.append(name)
                if state.busy.get(name, 0) > 0:
                    state.busy[name] -= 1
                    self.reply(503, b"")
                    return
            self.reply(200, data, body)

        def reply(self, status: int, data: bytes, body: bool = True) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", '"etag"')
            self.send_header("X-Repo-Commit", state.commit)
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()
