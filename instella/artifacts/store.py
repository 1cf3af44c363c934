"""Content-addressed bytes, and the records of which identity made which manifest.

    store/sha256/ab/abcd...   bytes, mode 0444, named by their SHA-256
    store/actions/<key>       manifest of the identity with that key
    store/quarantine/         damaged objects, out of the way
    store/work/<key>/         a running stage: inputs, output, scratch
    store/code/<hash>         what a code hash was made of
    store/results/<hash>      path of a results folder whose runs use this store
    store/verified/, locks/, tmp/, cache/   housekeeping; may be deleted while nothing runs

Every file gets its final name by one rename, after its bytes are on the disk.
"""

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from instella.artifacts.locks import hold, hold_if_free, nobody_waits
from instella.artifacts.manifest import MAX_BYTES, NAME, Entry, Manifest, read_manifest
from instella.canonical import flush, json_bytes, parse_json, sha256_bytes, sha256_file
from instella.errors import VerificationError

READ_ONLY = 0o444
SHA256 = r"[0-9a-f]{64}"
# Name of the lock between those who add to a store and those who remove from it.
REMOVAL = "removal"
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
        # A key from somebody's journal must not name a file elsewhere.
        path = self.root / "actions" / key
        if not re.fullmatch(SHA256, key) or not path.is_file():
            return None
        try:
            manifest = read_manifest(path)
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

    def code_modules(self, code: str) -> dict[str, str] | None:
        """Module to hash of its code, of what a code hash was made of.

        None if the store does not know it, or holds something else under its name: a store of
        somebody else may hold anything, and nothing is lost but the names.
        """
        if not re.fullmatch(SHA256, code):
            return None
        path = self.root / "code" / code
        if path.is_symlink() or not path.is_file():
            return None
        try:
            data = plain_bytes(path)
            if sha256_bytes(data) != code:
                return None
            value = parse_json(data, str(path))
        except VerificationError:
            return None
        is_known = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
        return value or None if is_known else None

    def note_results(self, results: Path) -> None:
        """Note that runs in ``results``, folder of a recipe's results, use this store."""
        data = b"\0".join(os.fsencode(path.resolve()) for path in (results, self.root))
        path = self.root / "results" / sha256_bytes(data)
        if not path.is_file():
            self.write(path, data)

    def users(self) -> list[Path]:
        """Folders of results whose runs used this store and that are there, sorted.

        Links are followed. A store that was copied or moved is another one.

        Raises:
            VerificationError: a note that cannot be read, so nobody knows whose it is.
        """
        here = os.fsencode(self.root.resolve())
        notes = [plain_bytes(path) for path in (self.root / "results").glob("[!.]*")]
        parted = [note.partition(b"\0") for note in notes]
        folders = {Path(os.fsdecode(folder)) for folder, _, store in parted if store == here}
        return sorted(folder for folder in folders if folder.is_dir())

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

    def copy(self, manifest: Manifest, folder: Path) -> None:
        """Copy the manifest's files into a new folder, read-only; the store stays as it is.

        Unlike a link, a copy changes no time of an object, and whoever writes to it changes
        nothing else. The objects must have been verified.

        Raises:
            OSError: no room, or an object cannot be read.
        """
        for path, entry in manifest.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.object_path(entry.sha256), target)
            os.chmod(target, READ_ONLY)

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

    def lock(
        self, name: str, waiting: Callable[[], None] = nobody_waits, shared: bool = False
    ) -> AbstractContextManager[None]:
        """Hold the lock ``name``; ``waiting`` is called once if another process has it."""
        return hold(self.root / "locks" / name, waiting, shared)

    def lock_if_free(self, name: str) -> AbstractContextManager[bool]:
        """Hold the lock ``name`` and tell whether that was possible without waiting."""
        return hold_if_free(self.root / "locks" / name)

    def in_use(self, waiting: Callable[[], None] = nobody_waits) -> AbstractContextManager[None]:
        """Nothing is removed from the store meanwhile.

        For what has to be one step to a removal: publishing objects and recording them, looking
        at objects and linking them. Many processes may be in here at once.
        """
        return hold(self.root / "locks" / REMOVAL, waiting, shared=True)

    def alone(self, waiting: Callable[[], None] = nobody_waits) -> AbstractContextManager[None]:
        """Nobody is ``in_use`` meanwhile, so that what nothing reaches can be removed."""
        return hold(self.root / "locks" / REMOVAL, waiting)


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


def plain_bytes(path: Path) -> bytes:
    """The bytes of a small file that the kit wrote, which a pipe or a folder is not.

    Raises:
        VerificationError: something else lies there.
        FileNotFoundError: nothing does.
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_BYTES:
        raise VerificationError(f"{path}: no plain file of at most {MAX_BYTES} bytes; move it away")
    return path.read_bytes()


def examine_file(path: Path, entry: Entry) -> str | None:
    """Rehash a file: None if it holds the entry's bytes, else what it is."""
    status = state_of(path)
    if status is None:
        return "nothing"
    if not stat.S_ISREG(status.st_mode):
        return "something that is not a plain file"
    if status.st_size != entry.size:
        return f"{status.st_size} bytes"
    try:
        found = sha256_file(path)
    except FileNotFoundError:
        # a removal was faster
        return "nothing"
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
