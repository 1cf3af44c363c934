"""A server that means harm: every try ends in bounded time and memory, with one line."""

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from instella.errors import BadUse, KitError
from instella.synthesis import client
from instella.synthesis.client import MOST_SILENCES, Client

TIMEOUT = 0.3
GOOD = json.dumps({"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}).encode()
OK = b"HTTP/1.1 200 OK\r\n"
LONG = OK + b"Content-Length: 1000000000000\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
MEGABYTE = b" " * (1 << 20)


def whole(body: bytes, head: bytes = OK) -> bytes:
    return head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


# What is sent at once, what is sent again and again, and the pause before each time.
ENDLESS = {
    "a body without end": (LONG, MEGABYTE, 0.0),
    "a body without length or end": (OK + b"\r\n", MEGABYTE, 0.0),
    "chunks without end": (CHUNKED, b"100000\r\n" + MEGABYTE + b"\r\n", 0.0),
    "a chunk's length without end": (CHUNKED, b"0" * 4096, 0.0),
    "headers without end": (OK, b"a: b\r\n", 0.0),
    "a header without end": (OK + b"a: ", MEGABYTE, 0.0),
    "informs without end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01),
    "a header in drops": (OK + b"a: ", b"b", 0.05),
    "a body in drops": (LONG, b" ", 0.05),
    "a refusal in drops": (b"HTTP/1.1 401 No\r\nContent-Length: 9999\r\n\r\n", b" ", 0.05),
    "nothing": (b"", b"", 0.05),
}
WHOLE = {
    "packed": whole(gzip.compress(bytes(64 << 20)), OK + b"Content-Encoding: gzip\r\n"),
    "a key twice": whole(GOOD.replace(b"{", b'{"choices": [], ', 1)),
    "deep": whole(b"[" * 1_000_000),
    "deep objects": whole(b'{"choices":' * 100_000),
    "a long number": whole(b'{"choices": ' + b"9" * 1_000_000 + b"}"),
    "no UTF-8": whole(b"\xff" + GOOD),
    "a NUL": whole(b"\0" + GOOD),
    "no choices": whole(b'{"choices": []}'),
    "choices that are an object": whole(b'{"choices": {"0": 1}}'),
    "content that is a list": whole(GOOD.replace(b'"yes"', b'["yes"]')),
    "no finish": whole(GOOD.replace(b'"stop"', b"null")),
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "a negative length": OK + b"Content-Length: -1\r\n\r\n{",
    "a chunk of no length": CHUNKED + b"x\r\n",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "nothing at all": b"",
}


@contextmanager
def server(first: bytes, again: bytes = b"", pause: float = 0.0) -> Iterator[str]:
    """Address of a server that reads a request and sends these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, first, again, pause), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def _serve(listening: socket.socket, first: bytes, again: bytes, pause: float) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            try:
                connection.recv(1 << 16)
                connection.sendall(first)
                while again or pause:
                    connection.sendall(again)
                    time.sleep(pause)
                    if not again and _is_closed(connection):
                        break
            except OSError:
                continue


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.fixture(autouse=True)
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_TRIES", 1)


def ask(url: str) -> tuple[str, str]:
    return Client(url, "secret", print, timeout=TIMEOUT, first_pause=0.0).complete({"a": 1})


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_cut(name: str) -> None:
    process = psutil.Process()
    memory, started = process.memory_info().rss, time.monotonic()
    with server(*ENDLESS[name]) as url, pytest.raises((KitError, BadUse)) as caught:
        ask(url)
    assert time.monotonic() - started < MOST_SILENCES * TIMEOUT + 5
    assert process.memory_info().rss - memory < 100 << 20
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_no_reply_is_one_line(name: str) -> None:
    with server(WHOLE[name]) as url, pytest.raises(KitError, match=r"after 1 tries") as caught:
        ask(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/", "http://127.0.0.1/"])
def test_a_redirect_is_not_followed(place: str) -> None:
    head = f"HTTP/1.1 307 Elsewhere\r\nLocation: {place}\r\n".encode()
    with server(whole(b"", head)) as url, pytest.raises(BadUse, match="status 307"):
        ask(url)


def test_a_good_reply_of_any_type_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves no thread that waits for its limit."""
    monkeypatch.setattr(client, "MOST_SILENCES", 1000)
    with server(whole(GOOD, OK + b"Content-Type: image/png\r\n")) as url:
        assert ask(url) == ("yes", "stop")
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(10)
            assert not thread.is_alive()
