"""A place behind a web server: read by GET, written by PUT where the server takes it."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

from instella.artifacts.manifest import Entry
from instella.data.sources.hub_cache import CHUNK_BYTES
from instella.data.sources.hub_trouble import Trouble
from instella.errors import KitError, VerificationError
from instella.remotes.remote import Absent, Body, Outgoing

TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
# seconds to connect, and without a byte
TIMEOUT = (10.0, 30.0)
MAX_DIGITS = 18


class Web:
    """Files below an address. See ``Remote``.

    User and password of the address are sent as HTTP asks for them (RFC 7617), to this host
    alone: a redirect is refused.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        self.shown = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
        self._local = threading.local()

    def size(self, name: str) -> int | None:
        with self._ask("HEAD", name) as response:
            if response.status_code == 404:
                return None
            self._check(response, name)
            return _number(response.headers.get("content-length"))

    @contextmanager
    def open(self, name: str, start: int = 0) -> Iterator[Body]:
        ranged = {"Range": f"bytes={start}-"} if start else {}
        with self._ask("GET", name, ranged) as response:
            if response.status_code == 404:
                raise Absent
            if response.status_code == 416:
                # shorter than what is here already
                total = response.headers.get("content-range", "").removeprefix("bytes */")
                yield Body(start, _number(total) or 0, iter(()))
                return
            self._check(response, name)
            if response.headers.get("content-encoding", "identity") != "identity":
                raise VerificationError(f"{self.shown}/{name}: the server sends it packed")
            first = self._first(response, name) if response.status_code == 206 else 0
            length = _number(response.headers.get("content-length"))
            yield Body(first, None if length is None else first + length, _chunks(response))

    def put(self, name: str, file: Path, entry: Entry) -> None:
        with Outgoing(file, entry) as data:
            self._put(name, data, entry.size)

    def put_bytes(self, name: str, data: bytes) -> None:
        self._put(name, data, len(data))

    def guarded(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _put(self, name: str, data: Any, size: int) -> None:
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        with self._ask("PUT", name, headers, data) as response:
            if response.status_code in (404, 405, 409, 501):
                raise KitError(
                    f"{self.shown}: the server takes no PUT (HTTP {response.status_code}); push to "
                    "the folder that it shows, as file:///FOLDER"
                )
            self._check(response, name)

    @contextmanager
    def _ask(
        self, method: str, name: str, headers: Mapping[str, str] | None = None, data: Any = None
    ) -> Iterator[requests.Response]:
        if not hasattr(self._local, "session"):
            self._local.session = requests.Session()
        sent = {"Accept-Encoding": "identity", **(headers or {})}
        try:
            with self._local.session.request(
                method, f"{self._url}/{name}", headers=sent, data=data, stream=True,
                timeout=TIMEOUT, allow_redirects=False,
            ) as response:  # fmt: skip
                yield response
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            # its text may hold the address with its password
            raise Trouble(f"{type(error).__name__} from {self.shown}") from None

    def _check(self, response: requests.Response, name: str) -> None:
        status = response.status_code
        if status in (200, 201, 204, 206):
            return
        if status in TRANSIENT:
            asked = _number(response.headers.get("retry-after"))
            raise Trouble(
                f"HTTP {status} from {self.shown}", None if asked is None else float(asked)
            )
        place = f"{self.shown}/{name}"
        if status in (401, 403):
            raise KitError(
                f"{place}: HTTP {status}: no access; give the address as "
                "http(s)://USER:PASSWORD@HOST/PATH"
            )
        if 300 <= status < 400:
            raise KitError(f"{place}: the server redirects; give the address that it leads to")
        raise VerificationError(f"{place}: the server answers HTTP {status}")

    def _first(self, response: requests.Response, name: str) -> int:
        unit, _, rest = response.headers.get("content-range", "").partition(" ")
        first = _number(rest.partition("-")[0])
        if unit != "bytes" or first is None:
            raise VerificationError(
                f"{self.shown}/{name}: the server sends a part without saying which"
            )
        return first


def _chunks(response: requests.Response) -> Iterator[bytes]:
    # not decoded, and too short a body is an error
    yield from response.raw.stream(CHUNK_BYTES, decode_content=False)


def _number(text: str | None) -> int | None:
    is_good = text is not None and text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    return int(text) if text is not None and is_good else None
