"""One request to a server that speaks OpenAI's chat completions (vLLM and others)."""

import http.client
import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from threading import Timer
from typing import Any

from instella.canonical import parse_json
from instella.errors import BadUse, KitError, VerificationError

MAX_TRIES = 8
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
TIMEOUT_SECONDS = 600.0
MAX_REPLY_BYTES = 4 << 20
# A whole try against the silence that ends it: a reply that trickles in is no reply.
MOST_SILENCES = 2
_BUSY = (408, 409, 425, 429, 500, 502, 503, 504)


class _Unusable(Exception):
    """A reply worth asking for again; ``pause`` is what the server wants, in seconds."""

    def __init__(self, what: str, pause: float = 0.0) -> None:
        super().__init__(what)
        self.pause = pause


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *args: Any) -> None:
        return None


class _Request(urllib.request.Request):
    """``limit`` runs from the connection on and cuts it."""

    limit: Timer | None = None


class _Limiter(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Connections that end after ``MOST_SILENCES`` timeouts, whatever the server sends."""

    def do_open(self, http_class: Any, req: Any, **http_conn_args: Any) -> Any:
        class Limited(http_class):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                req.limit = Timer(MOST_SILENCES * self.timeout, _cut, [self.sock])
                req.limit.daemon = True
                req.limit.start()

        return super().do_open(Limited, req, **http_conn_args)


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # most are closed by then
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class Client:
    """Asks one server; safe for several threads.

    Args:
        url: base address such as ``http://host:8000/v1``.
        key: sent as bearer token when not empty; never part of a message.
        timeout: seconds without a byte before a try counts as failed; a whole try may take
            ``MOST_SILENCES`` times as long.
        first_pause: seconds before the second try; doubled each time, at most a minute.
        say: takes a line about each failed try.
        who: what messages call the model behind the server.
    """

    def __init__(
        self,
        url: str,
        key: str,
        say: Callable[[str], None],
        timeout: float = TIMEOUT_SECONDS,
        first_pause: float = FIRST_PAUSE,
        who: str = "teacher",
    ) -> None:
        if not _is_address(url):
            raise BadUse(f"{who} {url!r}: not an address; write http://HOST:PORT/v1")
        if not _is_plain(key):
            raise BadUse(f"{who} {url}: its key holds a blank, a line end or no plain letter")
        self._url = url.rstrip("/") + "/chat/completions"
        self._key = key
        self._say = say
        self._timeout = timeout
        self._first_pause = first_pause
        self._who = who
        self._opener = urllib.request.build_opener(_NoRedirect, _Limiter)

    def complete(self, body: dict[str, Any]) -> tuple[str, str]:
        """The reply and why it ended (``stop``, ``length``).

        Raises:
            BadUse: the server refuses the request itself.
            KitError: no usable reply after ``MAX_TRIES`` tries.
        """
        data = json.dumps(body).encode()
        pause = self._first_pause
        for left in reversed(range(MAX_TRIES)):
            try:
                return self._once(data)
            except _Unusable as error:
                if not left:
                    raise KitError(
                        f"{self._who} {self._url}: {error} after {MAX_TRIES} tries; run the stage "
                        "or command again when it answers: the replies so far are kept"
                    ) from None
                self._say(f"{self._who}: {error}; asking again")
                time.sleep(min(max(pause, error.pause), LONGEST_PAUSE))
                pause *= 2
        raise AssertionError("unreachable")

    def _once(self, data: bytes) -> tuple[str, str]:
        request = _Request(self._url, data, {"Content-Type": "application/json"})
        if self._key:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                text = response.read(MAX_REPLY_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise self._status(error) from None
        except (OSError, http.client.HTTPException) as error:
            raise _Unusable(f"no reply ({type(error).__name__})") from None
        finally:
            if request.limit is not None:
                request.limit.cancel()
        if len(text) > MAX_REPLY_BYTES:
            raise _Unusable(f"a reply of more than {MAX_REPLY_BYTES} bytes")
        return _completion(text)

    def _status(self, error: urllib.error.HTTPError) -> Exception:
        if error.code in _BUSY:
            wanted = error.headers.get("Retry-After", "")
            pause = float(wanted) if wanted.isascii() and wanted.isdigit() else 0.0
            return _Unusable(f"status {error.code}", pause)
        try:
            said = error.read(300).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            said = ""
        plain = "".join(letter if letter.isprintable() else " " for letter in said)
        return BadUse(
            f"{self._who} {self._url}: status {error.code}: {plain[:200].strip()}; correct the "
            "address, the key or the model's name"
        )


def _is_address(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # no number as port
        return False
    return is_whole and parts.scheme in ("http", "https") and _is_plain(url)


def _is_plain(text: str) -> bool:
    """Whether a line of a request can hold it."""
    return all("!" <= letter <= "~" for letter in text)


def _completion(data: bytes) -> tuple[str, str]:
    try:
        choice = parse_json(data, "reply")["choices"][0]
        text, ended = choice["message"]["content"], choice["finish_reason"]
    except (VerificationError, KeyError, IndexError, TypeError):
        raise _Unusable("a reply that is no chat completion") from None
    if not isinstance(text, str) or not isinstance(ended, str):
        raise _Unusable("a reply that is no chat completion")
    # Half a surrogate pair has no UTF-8.
    return text.encode("utf-8", "replace").decode(), ended
