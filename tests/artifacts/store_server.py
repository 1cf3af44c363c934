"""A web server of a store's files on the loopback device, with the hub server's faults."""

import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

from data_sources.hub_server import Hub, _Storage

USER, PASSWORD = "reader", "never-to-be-seen"


class _Server(_Storage):
    """GET as the hub's storage; also HEAD, PUT where it is allowed, and a password."""

    takes_put = False
    protected = False

    def _name(self) -> str | None:
        """Name of a file that is there; answers by itself where there is none."""
        name = self.path.removeprefix("/store/")
        self.note(f"{self.command} {name}")
        wanted = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.protected and self.headers.get("Authorization") != wanted:
            self.reply(401)
            return None
        if name not in self.state.files and self.command != "PUT":
            self.reply(404)
            return None
        return name

    def do_GET(self) -> None:
        name = self._name()
        if name is not None:
            self.send_file(name)

    def do_HEAD(self) -> None:
        name = self._name()
        if name is not None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.state.files[name])))
            self.end_headers()

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        data = self.rfile.read(size)
        name = self._name()
        if name is None:
            return
        fault = self.state.next_fault(f"PUT {name}")
        if fault is not None and fault.kind == "status":
            self.reply(fault.status)
        elif not self.takes_put:
            self.reply(405)
        elif len(data) == size:
            self.state.files[name] = data if fault is None else fault.body
            self.reply(201)


@contextmanager
def serving_store(
    files: dict[str, bytes], takes_put: bool = False, protected: bool = False
) -> Iterator[Hub]:
    """Serve files until the end of the block; ``url`` of the state is the store's address."""
    state = Hub(files=files)
    options = {"state": state, "takes_put": takes_put, "protected": protected}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("S", (_Server,), options))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    credentials = f"{USER}:{PASSWORD}@" if protected else ""
    state.url = f"http://{credentials}127.0.0.1:{server.server_address[1]}/store"
    try:
        yield state
    finally:
        state.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def store_files(store: Path) -> dict[str, bytes]:
    """Objects, records and code closures of a store by name, as a web server shows them."""
    kinds = ("sha256", "actions", "code")
    return {
        path.relative_to(store).as_posix(): path.read_bytes()
        for kind in kinds
        for path in sorted((store / kind).rglob("*"))
        if path.is_file()
    }
