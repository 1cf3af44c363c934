"""Content-addressed bytes, and the records of which identity made which manifest.

    store/sha256/ab/abcd...   bytes, mode 0444, named by their SHA-256
    store/actions/<key>       manifest of the identity with that key
    store/quarantine/         damaged objects, out of the way
    store/work/<key>/         a running stage: inputs, output, scratch
    store/code/<hash>         what a code hash was made of
    store/verified/, locks/, tmp/, cache/   housekeeping; may be deleted at any time

Every file gets its final name by one rename, after its bytes are on the disk.
"""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from instella.artifacts.manifest import NAME, Entry, Manifest, parse_manifest
from instella.canonical import flush, json_bytes, sha256_bytes, sha256_file
from instella.errors import VerificationError

READ_ONLY = 0o444
# What a path says that leads nowhere: a folder on it is missing, a file, or a link to itself.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Store:
    """A store in the folder ``root``; folders are made when first needed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def object_path(self, sha256: str) -> Path:
        """Where the bytes with this hash lie, or would lie."""
        return self.root / "sha256" / sha256[:2] / sha256

    def publish(self, file: Path) -> Entry:
        """Move a file into the store; the file is gone afterwards.

        An intact object with the same bytes stays as it is; a damaged one is replaced.
        """
        entry = Entry(sha256_file(file), file.stat().st_size)
        target = self.object_path(entry.sha256)
        if target.exists() or target.is_symlink():
            if self.examine(entry) is None:
                file.unlink()
                return entry
            self.quarantine(entry.sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        # A file with a second name could be changed through it later, so it is copied.
        if file.stat().st_nlink == 1 and file.stat().st_dev == target.parent.stat().st_dev:
            _settle(file, target)
        else:
            self._copy_in(file, target, entry)
            file.unlink()
        return entry

    def restore(self, file: Path, entry: Entry) -> bool:
        """Copy ``file`` in as the object of ``entry``, if it holds exactly those bytes."""
        if file.is_symlink() or not file.is_file() or file.stat().st_size != entry.size:
            return False
        if sha256_file(file) != entry.sha256:
            return False
        target = self.object_path(entry.sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._copy_in(file, target, entry)
        return True

    def _copy_in(self, file: Path, target: Path, entry: Entry) -> None:
        with self._temporary() as temporary:
            shutil.copyfile(file, temporary)
            if sha256_file(temporary) != entry.sha256:
                raise VerificationError(f"{file}: changed while it was copied into the store")
            _settle(temporary, target)

    @contextmanager
    def _temporary(self) -> Iterator[Path]:
        folder = self.root / "tmp"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{os.urandom(8).hex()}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def examine(self, entry: Entry) -> str | None:
        """Rehash an object: None if intact, else what was found in its place."""
        return examine_file(self.object_path(entry.sha256), entry)

    def examine_all(self, entries: Iterable[Entry]) -> dict[Entry, str]:
        """Rehash many objects in threads: each bad entry with what was found."""
        files = {self.object_path(entry.sha256): entry for entry in entries}
        return {files[path]: found for path, found in examine_files(files).items()}

    def quarantine(self, sha256: str) -> Path | None:
        """Move a damaged object out of the way; its new path, or None if there is none."""
        path = self.object_path(sha256)
        if not path.exists() and not path.is_symlink():
            return None
        return self._set_aside(path)

    def _set_aside(self, path: Path) -> Path:
        folder = self.root / "quarantine"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{path.name}-{os.urandom(4).hex()}"
        path.rename(target)
        return target

    def action(self, key: str) -> Manifest | None:
        """Manifest recorded for an identity key; a damaged record counts as none."""
        path = self.root / "actions" / key
        if not path.is_file():
            return None
        try:
            manifest = parse_manifest(path.read_bytes(), str(path))
        except VerificationError:
            self._set_aside(path)
            return None
        # The key is recomputed, so a record under a wrong name is never served.
        if sha256_bytes(json_bytes(dict(manifest.identity))) != key:
            self._set_aside(path)
            return None
        return manifest

    def record(self, key: str, manifest: Manifest) -> None:
        """Record what an identity made; its objects must be published before."""
        self.write(self.root / "actions" / key, manifest.to_bytes())

    def drop_action(self, key: str) -> None:
        """Forget what an identity made."""
        (self.root / "actions" / key).unlink(missing_ok=True)

    def write(self, path: Path, data: bytes) -> None:
        """Write a small file so that it appears whole under its name."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
        try:
            temporary.write_bytes(data)
            _settle(temporary, path, mode=0o644)
        finally:
            temporary.unlink(missing_ok=True)

    def place(self, manifest: Manifest, folder: Path) -> None:
        """Make ``folder`` show exactly the manifest's files, read-only.

        Files are hard links, or copies where linking fails. Files that are right stay,
        wrong ones are replaced by rename, and anything else there, except a
        ``manifest.json``, is removed. The objects must have been verified.
        """
        folder.mkdir(parents=True, exist_ok=True)
        _clear_others(folder, manifest)
        for path, entry in manifest.files.items():
            self._place_file(entry, folder / path)

    def _place_file(self, entry: Entry, target: Path) -> None:
        source = self.object_path(entry.sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and (target.samefile(source) or examine_file(target, entry) is None):
            return
        temporary = target.with_name(f".place-{os.urandom(8).hex()}")
        try:
            try:
                os.link(source, temporary)
            except OSError:
                # Another file system, or one without links; a full disk fails here again.
                shutil.copyfile(source, temporary)
                os.chmod(temporary, READ_ONLY)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def lock(self, name: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock ``name``; ``waiting`` is called once if another process has it.

        The kernel lets go of it when the process dies, however it dies.
        """
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def describe(entry: Entry) -> str:
    """An entry in an error line."""
    return f"sha256 {entry.sha256} of {entry.size} bytes"


def state_of(path: Path) -> os.stat_result | None:
    """State of what lies at a path, links not followed; None if the path leads nowhere."""
    try:
        return path.lstat()
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise


def examine_file(path: Path, entry: Entry) -> str | None:
    """Rehash a file: None if it holds the entry's bytes, else what it is."""
    status = state_of(path)
    if status is None:
        return "nothing"
    if not stat.S_ISREG(status.st_mode):
        return "something that is not a plain file"
    if status.st_size != entry.size:
        return f"{status.st_size} bytes"
    found = sha256_file(path)
    return None if found == entry.sha256 else f"sha256 {found}"


def examine_files(
    files: Mapping[Path, Entry],
    examine: Callable[[Path, Entry], str | None] = examine_file,
) -> dict[Path, str]:
    """Rehash files in threads: the bad ones, each with what was found."""
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        found = pool.map(examine, files.keys(), files.values())
        return {path: text for path, text in zip(files, found, strict=True) if text is not None}


def _settle(temporary: Path, target: Path, mode: int = READ_ONLY) -> None:
    """Flush a finished file and its new name to the disk; the name appears at once."""
    os.chmod(temporary, mode)
    flush(temporary)
    os.replace(temporary, target)
    flush(target.parent)


def _clear_others(folder: Path, manifest: Manifest) -> None:
    wanted = {folder / path for path in manifest.files}
    parents = {parent for path in wanted for parent in path.parents}
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place) / name
            is_folder = path.is_dir() and not path.is_symlink()
            if is_folder and path in parents:
                continue
            if is_folder:
                shutil.rmtree(path)
            elif (path not in wanted and path != folder / NAME) or path.is_symlink():
                path.unlink()
        folders[:] = [name for name in folders if Path(place) / name in parents]


def plain_files(folder: Path) -> Mapping[str, Path]:
    """Relative POSIX path to file of everything below a folder, in sorted order.

    Raises:
        ValueError: a link or special file, named.
    """
    found: dict[str, Path] = {}

    def refuse(error: OSError) -> Any:
        raise error

    for place, folders, files in os.walk(folder, onerror=refuse):
        for name in [*folders, *files]:
            path = Path(place) / name
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                found[path.relative_to(folder).as_posix()] = path
            elif not stat.S_ISDIR(mode):
                raise ValueError(f"{path.relative_to(folder)!s} is a link or a special file")
    return dict(sorted(found.items()))
