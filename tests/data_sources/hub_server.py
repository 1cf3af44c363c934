"""A hub on the loopback device: its API, its files, its storage on another port, its faults."""

import hashlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from instella.canonical import sha256_bytes

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_never_to_be_seen"


@dataclass
class Fault:
    """What goes wrong with one answer that carries a file.

    Attributes:
        kind: status, cut, reset, stall, wrong, endless, unranged or unstated (no length).
        status: HTTP status of kind ``status``.
        at: bytes of the answer that are sent first.
        headers: added to the answer.
        body: sent instead, for kind ``wrong``.
        times: answers that it strikes.
    """

    kind: str
    status: int = 200
    at: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    times: int = 1


@dataclass(frozen=True)
class Request:
    """One line of the server's log; ``side`` is hub or storage."""

    side: str
    path: str
    range: str | None
    token: str | None


@dataclass
class Hub:
    """The state of one repository and the log of requests."""

    name: str = "owner/name"
    kind: str = "datasets"
    commit: str = COMMIT
    files: dict[str, bytes] = field(default_factory=dict)
    # Files up to this size are kept in git itself, as the hub does with small texts.
    small: int = 0
    card: dict[str, Any] = field(default_factory=lambda: {"license": "odc-by"})
    gated: str | bool = False
    let_in: str | None = None
    page_size: int = 1000
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    api_faults: list[Fault] = field(default_factory=list)
    stale_links: bool = False
    log: list[Request] = field(default_factory=list)
    url: str = ""
    storage_url: str = ""
    closing: threading.Event = field(default_factory=threading.Event)

    def ranges(self, path: str) -> list[str | None]:
        """The ranges asked for in a file's answers, in order; None: the whole file."""
        side = "hub" if self.is_small(path) else "storage"
        return [r.range for r in self.log if r.side == side and r.path == path]

    def is_small(self, path: str) -> bool:
        return len(self.files.get(path, b"")) <= self.small

    def next_fault(self, path: str) -> Fault | None:
        waiting = self.faults.get(path, [])
        while waiting and waiting[0].times == 0:
            waiting.pop(0)
        if not waiting:
            return None
        waiting[0].times -= 1
        return waiting[0]


@contextmanager
def serving(state: Hub) -> Iterator[Hub]:
    """Serve ``state`` on two ports until the end of the block."""
    servers = [
        ThreadingHTTPServer(("127.0.0.1", 0), type("H", (side,), {"state": state}))
        for side in (_Front, _Storage)
    ]
    state.url, state.storage_url = (f"http://127.0.0.1:{s.server_address[1]}" for s in servers)
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in servers]
    for server, thread in zip(servers, threads, strict=True):
        server.daemon_threads = True
        thread.start()
    try:
        yield state
    finally:
        state.closing.set()
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    side = ""

    def note(self, path: str) -> None:
        entry = Request(
            self.side, path, self.headers.get("Range"), self.headers.get("Authorization")
        )
        self.state.log.append(entry)

    def reply(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def send_file(self, path: str) -> None:
        """A file or the part asked for, with the fault that waits for it."""
        data = self.state.files[path]
        fault = self.state.next_fault(path) or Fault("none")
        if fault.kind == "status":
            self.reply(fault.status, b"", **fault.headers)
            return
        if fault.kind == "wrong":
            data = fault.body
        start, status = 0, 200
        wanted = self.headers.get("Range")
        whole = len(data)
        if wanted is not None and fault.kind != "unranged":
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, status = int(first), 206
            if start >= whole:
                self.reply(416, b"", Content_Range=f"bytes */{whole}")
                return
            data = data[start : int(last) + 1 if last else None]
        self.send_response(status)
        if status == 206:
            end = start + len(data) - 1
            self.send_header("Content-Range", f"bytes {start}-{end}/{whole}")
        if fault.kind not in ("unstated", "endless"):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.send_body(data, fault)

    def send_body(self, data: bytes, fault: Fault) -> None:
        partial = fault.kind in ("cut", "reset", "stall", "unstated")
        self.wfile.write(data[: fault.at] if partial else data)
        if fault.kind == "endless":
            self.wfile.write(b"more than was asked for")
        if fault.kind == "reset":
            self.wfile.flush()
            # Bytes that were sent arrive first; then the connection breaks off hard.
            self.state.closing.wait(0.1)
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if fault.kind == "stall":
            self.wfile.flush()
            self.state.closing.wait(30)

    def log_message(self, *args: Any) -> None:
        pass


class _Storage(_Handler):
    """Where the hub keeps large files: another origin, with signed addresses."""

    side = "storage"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path.removeprefix("/"))
        self.note(path)
        self.send_file(path)


class _Front(_Handler):
    """The hub itself."""

    side = "hub"

    def do_GET(self) -> None:
        state, path = self.state, unquote(urlsplit(self.path).path)
        api = f"/api/{state.kind}/{state.name}/"
        prefix = "" if state.kind == "models" else f"/{state.kind}"
        resolve = f"{prefix}/{state.name}/resolve/"
        if path.startswith(api):
            self.note(path)
            self.api(*path.removeprefix(api).split("/", 1))
        elif path.startswith(resolve):
            revision, _, name = path.removeprefix(resolve).partition("/")
            self.note(name)
            self.resolve(revision, name)
        else:
            self.note(path)
            self.reply(401, b"", X_Error_Code="RepoNotFound")

    def api(self, what: str, revision: str) -> None:
        state = self.state
        if state.api_faults:
            fault = state.api_faults.pop(0)
            self.reply(fault.status, fault.body, **fault.headers)
        elif revision not in ("main", state.commit):
            self.reply(404, b"", X_Error_Code="RevisionNotFound")
        elif what == "revision":
            info = {"sha": state.commit, "cardData": state.card, "gated": state.gated}
            self.reply(200, json.dumps(info).encode())
        else:
            self.tree()

    def tree(self) -> None:
        state = self.state
        start = int(parse_qs(urlsplit(self.path).query).get("cursor", ["0"])[0])
        names = sorted(state.files)
        entries: list[dict[str, Any]] = [{"type": "directory", "oid": "0" * 40, "path": "data"}]
        for name in names[start : start + state.page_size]:
            data = state.files[name]
            entry = {"type": "file", "path": name, "size": len(data), "oid": git_sha1(data)}
            if not state.is_small(name):
                entry["lfs"] = {"oid": sha256_bytes(data), "size": len(data), "pointerSize": 130}
            entries.append(entry)
        headers = {}
        if start + state.page_size < len(names):
            host = "http://127.0.0.1:1" if state.stale_links else state.url
            query = f"recursive=true&cursor={start + state.page_size}"
            headers["Link"] = f'<{host}/api/elsewhere?{query}>; rel="next"'
        self.reply(200, json.dumps(entries).encode(), **headers)

    def resolve(self, revision: str, name: str) -> None:
        state = self.state
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        if state.gated and (token is None or token != state.let_in):
            self.reply(401 if token is None else 403, b"", X_Error_Code="GatedRepo")
        elif revision != state.commit:
            self.reply(404, b"", X_Error_Code="RevisionNotFound")
        elif name not in state.files:
            self.reply(404, b"", X_Error_Code="EntryNotFound")
        elif state.is_small(name):
            self.send_file(name)
        else:
            data = state.files[name]
            self.reply(
                302, b"",
                Location=f"{state.storage_url}/{quote(name)}?signature=never-to-be-seen",
                X_Linked_Etag=f'"{sha256_bytes(data)}"', X_Linked_Size=str(len(data)),
            )  # fmt: skip


def git_sha1(data: bytes) -> str:
    """The hash by which git knows a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def http_date(seconds: float) -> str:
    """A date for ``Retry-After``."""
    return formatdate(seconds, usegmt=True)
