"""Takes files out of a zip archive that nobody has to trust."""

import errno
import lzma
import stat
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from instella.data.member_names import check_name, matching
from instella.errors import VerificationError

MAX_MEMBER_BYTES = 4 << 30
MAX_TOTAL_BYTES = 16 << 30
CHUNK_BYTES = 1 << 20
ENCRYPTED = 0x1
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


def extract(archive: Path, patterns: Iterable[str], folder: Path) -> None:
    """Write the members that match ``patterns`` under ``folder``, at their own paths.

    Args:
        archive: a zip file, for example a wheel.
        patterns: exact paths or patterns, see ``member_names.matching``.
        folder: existing folder.

    Raises:
        VerificationError: no zip, damaged, a pattern without a match, or any entry with
            an unsafe name, a name that stands twice, a link, a device, encryption, or a
            size above ``MAX_MEMBER_BYTES`` (wanted ones, all of them ``MAX_TOTAL_BYTES``).
    """
    where = archive.name
    try:
        with zipfile.ZipFile(archive) as file:
            entries = _check_entries(file.infolist(), where)
            wanted = matching(entries, patterns, where)
            _check_sizes([entries[name] for name in wanted], where)
            for name in wanted:
                _write(file, entries[name], folder / name, where)
    except (*_DAMAGE, OSError) as error:
        # bz2 reports bad data without a number, a wrong offset ends in a seek that is invalid.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise VerificationError(f"{where}: damaged zip archive: {error}") from None


def _check_entries(infos: list[zipfile.ZipInfo], where: str) -> dict[str, zipfile.ZipInfo]:
    entries: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        # zipfile cuts a name at a NUL; the original shows it.
        check_name(info.orig_filename.removesuffix("/"), where)
        if info.filename in entries:
            raise VerificationError(f"{where}: {info.filename!r} stands twice in the archive")
        mode = info.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise VerificationError(f"{where}: {info.filename!r} is a link or a device")
        if info.flag_bits & ENCRYPTED:
            raise VerificationError(f"{where}: {info.filename!r} is encrypted")
        if not info.is_dir():
            entries[info.filename] = info
    return entries


def _check_sizes(infos: list[zipfile.ZipInfo], where: str) -> None:
    for info in infos:
        if info.file_size > MAX_MEMBER_BYTES:
            raise VerificationError(
                f"{where}: {info.filename!r} would take {info.file_size} bytes, "
                f"more than {MAX_MEMBER_BYTES}"
            )
    total = sum(info.file_size for info in infos)
    if total > MAX_TOTAL_BYTES:
        raise VerificationError(f"{where}: the files would take {total} bytes together")


def _write(file: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, where: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        output = target.open("xb")
    except OSError as error:
        raise VerificationError(f"{where}: cannot write {info.filename!r}: {error}") from None
    with output, file.open(info) as member:
        # zipfile reads no more than the declared size and checks the CRC at the end.
        while chunk := member.read(CHUNK_BYTES):
            output.write(chunk)
