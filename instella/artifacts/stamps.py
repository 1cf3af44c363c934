"""Remembers which file was hashed in which state, so that unchanged files stay unread.

A stamp holds size, mtime, ctime and inode of a file at the time its hash was right. The
kernel sets ctime on every change and no user can set it back, so a stamp that matches
means nothing was written since. A wrong or missing stamp costs a rehash.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from instella.artifacts.manifest import Entry
from instella.artifacts.store import Store, examine_file, examine_files, state_of

# File times come from the kernel's tick (4 to 10 ms): a change within one tick of the
# stamp would show the same times, so states younger than this are not trusted.
SETTLE_NS = 20_000_000


class Stamps:
    """Stamps kept in a store."""

    def __init__(self, store: Store) -> None:
        self._folder = store.root / "verified"

    def examine(self, files: Mapping[Path, Entry]) -> dict[Path, str]:
        """Bad files with what was found; only files without a matching stamp are read."""
        unknown = {path: entry for path, entry in files.items() if not self._matches(path, entry)}
        return examine_files(unknown, self._rehash)

    def renew(self, states: Mapping[Path, tuple[Entry, os.stat_result]]) -> None:
        """Stamp files verified in the given state.

        Making or removing a hard link changes ctime alone; such files are stamped anew
        when inode, size and mtime are what they were when the hash was taken.
        """
        if states:
            time.sleep(SETTLE_NS / 1e9)
        for path, (entry, before) in states.items():
            now = state_of(path)
            if now is not None and same_file(now, before):
                self._write(entry, now)

    def forget(self, entry: Entry) -> None:
        """Have every file with these bytes read again."""
        for path in (self._folder / entry.sha256[:2]).glob(f"{entry.sha256}-*"):
            path.unlink(missing_ok=True)

    def _rehash(self, path: Path, entry: Entry) -> str | None:
        before = state_of(path)
        found = examine_file(path, entry)
        if found is None and before is not None:
            after = state_of(path)
            settled = time.time_ns() - before.st_ctime_ns > SETTLE_NS
            if settled and after is not None and _state(after) == _state(before):
                self._write(entry, before)
        return found

    def _matches(self, path: Path, entry: Entry) -> bool:
        try:
            state = path.lstat()
            return self._path(entry, state).read_text(encoding="ascii") == _state(state)
        except (OSError, UnicodeDecodeError):
            return False

    def _write(self, entry: Entry, state: os.stat_result) -> None:
        path = self._path(entry, state)
        # Stamps only save time: a full or read-only disk must not stop a check.
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_state(state), encoding="ascii")

    def _path(self, entry: Entry, state: os.stat_result) -> Path:
        return self._folder / entry.sha256[:2] / stamp_name(entry, state)


def stamp_name(entry: Entry, state: os.stat_result) -> str:
    """File name of the stamp of a file with these bytes in this state."""
    return f"{entry.sha256}-{state.st_ino}"


def same_file(left: os.stat_result, right: os.stat_result) -> bool:
    """Same inode, size and mtime: no bytes were written in between."""
    return (left.st_ino, left.st_size, left.st_mtime_ns) == (
        right.st_ino,
        right.st_size,
        right.st_mtime_ns,
    )


def _state(state: os.stat_result) -> str:
    return f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino}\n"
