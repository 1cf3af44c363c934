"""Downloads the files of a lock: many at once, resumed, verified, never twice.

A file grows in a part that survives a kill, and is asked for from its last byte on. It is
hashed while it arrives; only the pinned bytes become an object. Bytes that came from an
earlier process and turn out wrong cost one more download from the start.
"""

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from instella.data.member_names import matching
from instella.data.sources.hub_cache import CHUNK_BYTES, Cache, write_all
from instella.data.sources.hub_lock import Lock, LockedFile
from instella.data.sources.hub_progress import ByteProgress
from instella.data.sources.hub_trouble import Patience, Stopped, Trouble
from instella.errors import KitError, VerificationError

if TYPE_CHECKING:
    from instella.data.sources.hub_client import Body, Client, Repository

CONNECTIONS = 8
# EFBIG: a limit on the size of files, as batch systems set it.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Say = Callable[[str], None]


def fetch_repository(
    lock: Lock,
    folder: Path | None,
    downloads: Path,
    say: Say,
    patterns: Iterable[str] = ("*",),
) -> list[str]:
    """Fetch the files of a locked data set or model; those that are there stay.

    Args:
        lock: what is wanted.
        folder: gets the files under their paths and must hold none of them yet; None: they
            are fetched and verified in ``downloads`` and no more.
        downloads: folder that keeps them.
        say: takes lines of progress.
        patterns: exact paths or patterns of the files to take.

    Returns:
        the paths, sorted.

    Raises:
        VerificationError: a file that cannot be had, or other bytes than the lock's.
        KitError: the disk is full, or the hub does not let this user in.
    """
    names = matching(lock.files, patterns, f"{lock.repository} (its lock)")
    total = sum(lock.files[name].size for name in names)
    job = _Download(lock, downloads, ByteProgress(lock.repository, total, say))
    job.run(names, folder)
    return names


class _Download:
    """One call of ``fetch_repository``."""

    def __init__(self, lock: Lock, downloads: Path, progress: ByteProgress) -> None:
        self.lock = lock
        self.cache = Cache(downloads)
        self.progress = progress
        self.stop = threading.Event()
        self._client: Client | None = None
        self._client_lock = threading.Lock()

    def run(self, names: list[str], folder: Path | None) -> None:
        pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="hub")
        try:
            jobs = [
                pool.submit(self.fetch, name, folder / name if folder is not None else None)
                for name in names
            ]
            wait(jobs, return_when=FIRST_EXCEPTION)
        finally:
            self.stop.set()
            pool.shutdown(cancel_futures=True)
        errors = [job.exception() for job in jobs if not job.cancelled()]
        found = [error for error in errors if error is not None]
        for error in sorted(found, key=lambda error: isinstance(error, Stopped)):
            raise error
        self.progress.end()

    def fetch(self, name: str, target: Path | None) -> None:
        """Bring one file to the cache and, where asked, to ``target``."""
        file = self.lock.files[name]
        if self.stop.is_set():
            raise Stopped
        try:
            if self.cache.holds(file.sha256, file.size, target):
                self.progress.here(file.size)
                return
            while not self._attempt(name, file):
                pass
            if target is not None and not self.cache.holds(file.sha256, file.size, target):
                raise VerificationError(
                    f"{self.lock.repository}/{name}: altered in {self.cache.root} before it was "
                    "copied; run it again"
                )
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise KitError(
                f"{self.lock.repository}/{name}: the disk is full ({os.strerror(error.errno)}), "
                f"that of {self.cache.root} or of the stage's folder; what has arrived is kept: "
                "free some space and run it again"
            ) from None

    def _attempt(self, name: str, file: LockedFile) -> bool:
        """True once the object is there; False when old bytes were wrong and are put away."""
        with self.cache.locked_part(file.sha256) as part:
            if self._is_there(name, file):
                # Another process was faster; what this one found of the part is of no use.
                self.cache.part(file.sha256).unlink()
                self.progress.here(file.size)
                return True
            resumed = os.fstat(part.fileno()).st_size > 0
            found = self._receive(name, file, part)
            if found == file.sha256:
                self.cache.publish(file.sha256)
                return True
            bad = self.cache.set_aside(self.cache.part(file.sha256), file.sha256, found)
            self.progress.back(file.size)
            if resumed:
                self.progress.say(f"{name}: what was kept of it was wrong, now in {bad}; again")
                return False
            raise VerificationError(
                f"{self.lock.repository}/{name}: SHA-256 is {found}, the lock expects "
                f"{file.sha256}; the wrong bytes are kept as {bad} for inspection"
            )

    def _is_there(self, name: str, file: LockedFile) -> bool:
        path = self.cache.object(file.sha256)
        if self.cache.holds(file.sha256, file.size):
            return True
        if path.exists():
            bad = self.cache.set_aside(path, file.sha256, "altered-on-disk-")
            self.progress.say(f"{name}: altered on this disk, now in {bad}; fetching it again")
        return False

    def _receive(self, name: str, file: LockedFile, part: FileIO) -> str:
        """Append until the part has the file's size; the SHA-256 of all its bytes."""
        digest, position = _digest_of(part)
        if position > file.size:
            digest, position = _emptied(part)
        self.progress.here(position)
        patience = Patience(self.stop, f"{self.lock.repository}/{name}")
        while position < file.size:
            try:
                with self._ask(name, file, position) as body:
                    if body.start != position:
                        # The server knows no ranges: the file comes from its start.
                        self.progress.back(position)
                        digest, position = _emptied(part)
                    for chunk in body.chunks:
                        if self.stop.is_set():
                            raise Stopped
                        if position + len(chunk) > file.size:
                            raise self._wrong_size(name, file, f"more than {file.size}")
                        write_all(part, chunk)
                        digest.update(chunk)
                        position += len(chunk)
                        patience.progress(len(chunk))
                        self.progress.add(len(chunk))
                if position < file.size:
                    raise Trouble(f"cut off after {position:,} of {file.size:,} bytes")
            except Trouble as trouble:
                self.progress.say(f"{name}: {trouble}; asking again")
                patience.wait(trouble)
        return digest.hexdigest()

    @contextmanager
    def _ask(self, name: str, file: LockedFile, position: int) -> Iterator["Body"]:
        """The file's bytes from ``position`` on, after what can be told before they come."""
        client = self._shared_client()
        with client.body(self._repository(), name, position) as body:
            if body.start not in (0, position):
                raise VerificationError(
                    f"{self.lock.repository}/{name}: asked for byte {position} on, the server "
                    f"sends from {body.start} on"
                )
            if body.linked is not None and body.linked != file.sha256:
                raise VerificationError(
                    f"{self.lock.repository}/{name}: the hub has SHA-256 {body.linked}, the lock "
                    f"expects {file.sha256}; run `instella data lock` to see what changed"
                )
            if body.length is not None and body.start + body.length != file.size:
                raise self._wrong_size(name, file, str(body.start + body.length))
            yield body

    def _wrong_size(self, name: str, file: LockedFile, found: str) -> VerificationError:
        return VerificationError(
            f"{self.lock.repository}/{name}: the hub sends {found} bytes, the lock expects "
            f"{file.size}; nothing of it is used"
        )

    def _repository(self) -> "Repository":
        from instella.data.sources.hub_client import Repository

        return Repository(self.lock.repository, self.lock.repository_type, self.lock.commit)

    def _shared_client(self) -> "Client":
        """Made when the first byte is needed: what is here needs neither network nor library."""
        from instella.data.sources.hub_client import Client

        with self._client_lock:
            if self._client is None:
                self._client = Client(self.stop)
            return self._client


def _digest_of(part: FileIO) -> tuple["hashlib._Hash", int]:
    """The digest of what a part holds, and its number of bytes."""
    digest, size = hashlib.sha256(), 0
    part.seek(0)
    while chunk := part.read(CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
    return digest, size


def _emptied(part: FileIO) -> tuple["hashlib._Hash", int]:
    part.truncate(0)
    return hashlib.sha256(), 0
