"""A place that is a folder: a store on another disk, or on one that machines share."""

import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from io import BufferedReader
from pathlib import Path

from instella.artifacts.manifest import Entry
from instella.artifacts.store import Store, state_of
from instella.data.sources.hub_cache import CHUNK_BYTES
from instella.errors import VerificationError
from instella.remotes.remote import Absent, Body


class Folder:
    """A store's folder; what it holds is not trusted. See ``Remote``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shown = str(root)
        self._store = Store(root)

    def size(self, name: str) -> int | None:
        state = state_of(self.root / name)
        return state.st_size if state is not None and stat.S_ISREG(state.st_mode) else None

    @contextmanager
    def open(self, name: str, start: int = 0) -> Iterator[Body]:
        path = self.root / name
        state = state_of(path)
        if state is None:
            raise Absent
        # Neither through a link out of the folder nor into a pipe that never ends.
        if not stat.S_ISREG(state.st_mode):
            raise VerificationError(f"{path}: not a plain file; remove it there")
        try:
            file = path.open("rb")
        except FileNotFoundError:
            # a removal was faster
            raise Absent from None
        with file:
            total = file.seek(0, os.SEEK_END)
            file.seek(start)
            yield Body(start, total, _chunks(file))

    def put(self, name: str, file: Path, entry: Entry) -> None:
        with self._store.in_use():
            self._store.quarantine(entry.sha256)
            if not self._store.restore(file, entry):
                raise VerificationError(
                    f"{file}: not sent: its bytes are not those of its name; instella store "
                    "verify names what is damaged"
                )

    def put_bytes(self, name: str, data: bytes) -> None:
        with self._store.in_use():
            self._store.write(self.root / name, data)

    def guarded(self) -> AbstractContextManager[None]:
        return self._store.in_use()


def _chunks(file: BufferedReader) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk
