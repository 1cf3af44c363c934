"""Brings one object into a store: resumed, verified before it gets its name."""

import hashlib
import os
from io import FileIO
from pathlib import Path

from instella.artifacts.manifest import Entry
from instella.artifacts.store import Store, describe, state_of
from instella.data.sources.hub_cache import Cache, write_all
from instella.data.sources.hub_progress import ByteProgress
from instella.data.sources.hub_trouble import FORGIVEN_AFTER_BYTES, Stopped, Trouble
from instella.remotes.names import object_name
from instella.remotes.patience import Crew
from instella.remotes.remote import Absent, Remote

# A proxy may have kept wrong bytes, so what came whole and wrong is asked for once more.
TRIES = 2
NOTHING = "nothing"
# A removal that spares nothing takes unfinished files too.
REMOVED = "what a removal took"


class Parts(Cache):
    """Beginnings of objects, among the store's unfinished files, which gc knows."""

    def __init__(self, store: Store) -> None:
        self.root = store.root / "tmp"

    def part(self, sha256: str) -> Path:
        return self.root / f"part-{sha256}"


class Fetcher:
    """Fetches objects from one place into one store.

    Args:
        remote: where from.
        store: where to.
        crew: waits for what may pass.
        progress: told of bytes and trouble.
    """

    def __init__(self, remote: Remote, store: Store, crew: Crew, progress: ByteProgress) -> None:
        self._remote = remote
        self._store = store
        self._crew = crew
        self._progress = progress
        self._parts = Parts(store)

    def fetch(self, entry: Entry) -> str | None:
        """Publish the object; None, or what the place has instead of its bytes."""
        found = self._fetch(entry)
        if found == REMOVED:
            with self._store.in_use():
                found = self._fetch(entry)
        return found

    def _fetch(self, entry: Entry) -> str | None:
        with self._parts.locked_part(entry.sha256) as part:
            # another process may have been faster
            if self._store.examine(entry) is None:
                self._parts.part(entry.sha256).unlink(missing_ok=True)
                self._progress.here(entry.size)
                return None
            fresh = 0
            while True:
                fresh += _size(part) == 0
                found = self._try(entry, part)
                if found is None or found == REMOVED:
                    return found
                self._progress.back(_size(part))
                part.truncate(0)
                if found == NOTHING or fresh == TRIES:
                    return found
                self._progress.say(f"{object_name(entry)}: found {found}; asking again")

    def _try(self, entry: Entry, part: FileIO) -> str | None:
        """Receive the object and publish it: None, or what came instead."""
        known = _size(part)
        self._progress.here(known)

        def has_grown() -> bool:
            nonlocal known
            before, known = known, _size(part)
            return known - before >= FORGIVEN_AFTER_BYTES

        what = f"{self._remote.shown}/{object_name(entry)}"
        try:
            found = self._crew.patiently(what, lambda: self._receive(entry, part), has_grown)
        except Absent:
            return NOTHING
        except _OtherSize as error:
            return f"{error} bytes"
        if found != entry.sha256:
            return describe(Entry(found, entry.size))
        part_path = self._parts.part(entry.sha256)
        with self._store.in_use():
            # another process may have begun anew under the same name
            state = state_of(part_path)
            if state is None or not os.path.samestat(state, os.fstat(part.fileno())):
                self._progress.back(entry.size)
                return REMOVED
            self._store.publish(part_path)
        return None

    def _receive(self, entry: Entry, part: FileIO) -> str:
        """Append until the part has the entry's size; SHA-256 of all its bytes."""
        part.seek(0)
        digest, position = hashlib.file_digest(part, "sha256"), _size(part)
        if position == entry.size and position:
            return digest.hexdigest()
        with self._remote.open(object_name(entry), position) as body:
            if body.total is not None and body.total != entry.size:
                raise _OtherSize(str(body.total))
            if body.start != position:
                # it knows no ranges: the file comes from its start
                self._progress.back(position)
                part.truncate(0)
                digest, position = hashlib.sha256(), 0
            if body.start != position:
                raise Trouble(f"sends from byte {body.start} on")
            for chunk in body.chunks:
                if self._crew.stop.is_set():
                    raise Stopped
                if position + len(chunk) > entry.size:
                    raise _OtherSize(f"more than {entry.size}")
                write_all(part, chunk)
                digest.update(chunk)
                position += len(chunk)
                self._progress.add(len(chunk))
        if position < entry.size:
            raise Trouble(f"cut off after {position:,} of {entry.size:,} bytes")
        return digest.hexdigest()


class _OtherSize(Exception):
    """The place has more or fewer bytes under this name."""


def _size(part: FileIO) -> int:
    return os.fstat(part.fileno()).st_size


def hash_of(remote: Remote, entry: Entry) -> str | None:
    """SHA-256 of what a place has under an entry's name, read to its end; None: nothing.

    Reads no more than the entry's bytes and one chunk.
    """
    digest, size = hashlib.sha256(), 0
    try:
        with remote.open(object_name(entry)) as body:
            for chunk in body.chunks:
                digest.update(chunk)
                size += len(chunk)
                if size > entry.size:
                    break
    except Absent:
        return None
    return digest.hexdigest()
