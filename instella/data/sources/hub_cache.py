"""Fetched files by their SHA-256, so that no revision and no repository fetches one twice.

Under ``downloads/hub``: ``objects/ab/<sha256>`` are whole files, ``parts/<sha256>`` what has
arrived of others, ``quarantine`` wrong bytes for a person to look at. A name is no proof:
whoever uses an object hashes it on the way.
"""

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from instella.errors import VerificationError

CHUNK_BYTES = 1 << 20


class Cache:
    """The hub's part of a downloads folder."""

    def __init__(self, downloads: Path) -> None:
        self.root = downloads / "hub"

    def object(self, sha256: str) -> Path:
        """Where the file with this hash stands, or would."""
        return self.root / "objects" / sha256[:2] / sha256

    def part(self, sha256: str) -> Path:
        """Where the beginning of the file with this hash stands, or would."""
        return self.root / "parts" / sha256

    def holds(self, sha256: str, size: int, copy_to: Path | None = None) -> bool:
        """Whether the object is there and right; reads it once.

        Args:
            sha256: its hash.
            size: its bytes.
            copy_to: gets the same bytes when they are right; its folder is made.
        """
        path = self.object(sha256)
        try:
            if path.stat().st_size != size:
                return False
            found = _copy(path, copy_to) if copy_to is not None else _hash(path)
        except FileNotFoundError:
            return False
        if found == sha256:
            return True
        if copy_to is not None:
            copy_to.unlink()
        return False

    def set_aside(self, path: Path, expected: str, found: str) -> Path:
        """Move wrong bytes to the quarantine; the new path."""
        bad = self.root / "quarantine" / f"{expected[:16]}-is-{found[:16]}"
        bad.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, bad)
        return bad

    def publish(self, sha256: str) -> None:
        """Make a whole, verified part an object."""
        path = self.object(sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self.part(sha256), path)

    @contextmanager
    def locked_part(self, sha256: str) -> Iterator[FileIO]:
        """The part, opened to append and unbuffered; no other process or thread has it.

        It may be moved or removed meanwhile. An empty one that is left goes away.
        """
        path = self.part(sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _open_locked(path)
        try:
            yield file
        finally:
            if os.fstat(file.fileno()).st_size == 0 and _is_at(file, path):
                path.unlink()
            file.close()


def _open_locked(path: Path) -> FileIO:
    while True:
        file = FileIO(_open(path), "a+")
        fcntl.flock(file, fcntl.LOCK_EX)
        # Its last owner may have moved it away while this one waited.
        if _is_at(file, path):
            return file
        file.close()


def _open(path: Path) -> int:
    """A descriptor of the part itself: behind a link, another file would be cut and grow."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise VerificationError(f"{path}: is a link, not a part of a file; remove it") from None


def _is_at(file: FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(path: Path, target: Path) -> str:
    """Copy a file; the hash of the bytes that were copied."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as source:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb", buffering=0) as copy:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                write_all(copy, chunk)
    return digest.hexdigest()


def write_all(file: FileIO, data: bytes) -> None:
    """Write every byte to an unbuffered file; OSError when the disk takes no more."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]
