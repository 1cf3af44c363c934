"""What a place for results has to be able to do, and which one a URL means.

The layout there is the store's own (``instella/artifacts/store.py``), so a store's folder that
any web server shows is such a place. Credentials of a URL are sent and never shown.
"""

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from instella.artifacts.manifest import Entry
from instella.data.sources.hub_cache import CHUNK_BYTES
from instella.errors import BadUse, VerificationError

KINDS = "file:///FOLDER, http(s)://HOST/PATH or s3://BUCKET/PATH"


class Absent(Exception):
    """The place has nothing of this name."""


@dataclass(frozen=True)
class Body:
    """Bytes that arrive.

    Attributes:
        start: where in the file they begin.
        total: bytes of the whole file; None where the place does not say.
        chunks: the bytes. ``Trouble`` while reading when the connection breaks.
    """

    start: int
    total: int | None
    chunks: Iterator[bytes]


class Remote(Protocol):
    """A place that holds files by name. Safe for use by several threads.

    Every method raises ``Trouble`` for what may pass, and KitError for what will not.

    Attributes:
        shown: the place in messages, without credentials.
    """

    shown: str

    def size(self, name: str) -> int | None:
        """Bytes of a file; None if there is none."""

    def open(self, name: str, start: int = 0) -> AbstractContextManager[Body]:
        """The bytes of a file from ``start`` on, or all where the place knows no ranges.

        Raises:
            Absent: there is no such file.
        """

    def put(self, name: str, file: Path, entry: Entry) -> None:
        """Send a file, which has to hold the entry's bytes; it appears whole or not at all.

        Raises:
            VerificationError: the file holds other bytes, or changes while it is read.
        """

    def put_bytes(self, name: str, data: bytes) -> None:
        """Send a small file."""

    def guarded(self) -> AbstractContextManager[None]:
        """Nothing is removed there meanwhile, where the place can promise that."""


def open_remote(url: str) -> Remote:
    """The place that a URL means; nothing is asked yet.

    Raises:
        BadUse: the URL has another form.
    """
    if not url.isprintable() or " " in url:
        raise BadUse(
            f"the URL holds a blank, which is %20 there, or an unprintable character; give {KINDS}"
        )
    try:
        parts = urlsplit(url)
        has_port = parts.port is not None
    except ValueError:
        raise BadUse(f"the URL cannot be read; give {KINDS}") from None
    # neither is shown: both may be a secret
    if parts.query or parts.fragment:
        raise BadUse(f"a URL with '?' or '#' names no place for several files; give {KINDS}")
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        from instella.remotes.folder import Folder

        return Folder(Path(unquote(parts.path)))
    if parts.scheme in ("http", "https") and parts.hostname:
        from instella.remotes.web import Web

        return Web(url.rstrip("/"))
    if parts.scheme == "s3" and parts.hostname and "@" not in parts.netloc and not has_port:
        from instella.remotes.bucket import Bucket

        return Bucket(parts.netloc, parts.path.strip("/"))
    raise BadUse(f"not a place that results can be sent to or taken from; give {KINDS}")


def read_small(remote: Remote, name: str, limit: int) -> bytes | None:
    """The bytes of a small file; None if there is none.

    Raises:
        VerificationError: it is larger than ``limit`` bytes.
    """
    data = bytearray()
    try:
        with remote.open(name) as body:
            for chunk in body.chunks:
                data += chunk
                if len(data) > limit:
                    raise VerificationError(
                        f"{remote.shown}/{name}: larger than {limit} bytes, so not what it should be"
                    )
    except Absent:
        return None
    return bytes(data)


class Outgoing:
    """A file that is read to be sent, and hashed meanwhile.

    Its last bytes are given out only when all of them were the right ones, so that whoever
    receives what is wrong gets it cut short.
    """

    def __init__(self, file: Path, entry: Entry) -> None:
        self.len = entry.size
        self._path = file
        self._entry = entry
        self._file = file.open("rb")
        self._digest = hashlib.sha256()
        self._left = entry.size

    def __enter__(self) -> "Outgoing":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int = CHUNK_BYTES) -> bytes:
        """The next bytes; none at the end.

        Raises:
            VerificationError: the file does not hold the entry's bytes.
        """
        if not self._left:
            return b""
        data = self._file.read(min(size, self._left) if size > 0 else self._left)
        self._digest.update(data)
        self._left -= len(data)
        is_wrong = not data or (not self._left and self._digest.hexdigest() != self._entry.sha256)
        if is_wrong:
            raise VerificationError(
                f"{self._path}: not sent whole: its bytes are not those of its name; "
                "instella store verify names what is damaged"
            )
        return data
