"""Files of a source's folder: listing, safe opening, lines."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from instella.data.member_names import check_name, matching
from instella.errors import VerificationError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ABOUT_SOURCE = "source.json"
LONGEST_ROW_BYTES = 1 << 28


def source_files(folder: Path, patterns: tuple[str, ...], suffixes: tuple[str, ...]) -> list[str]:
    """Paths inside ``folder``, with ``/``, sorted by code point.

    Args:
        folder: files of the source's artifact.
        patterns: exact paths or patterns (``data.member_names.matching``).
        suffixes: keep only names that end with one of them.

    Raises:
        VerificationError: a pattern without a match, or nothing left.
    """
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    names = [name for name in names if name != ABOUT_SOURCE and name.endswith(suffixes)]
    found = matching(names, patterns, str(folder))
    if not found:
        raise VerificationError(f"{folder}: no file that ends with {' '.join(suffixes)}")
    return found


def member(folder: Path, name: str) -> Path:
    """The file ``name`` of a source; VerificationError when it is not there or unsafe."""
    path = folder / check_name(name, str(folder))
    if not path.is_file():
        raise VerificationError(f"{path}: no such file in the source; correct option file")
    return path


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file's bytes, unpacked when its name ends with ``.gz`` or ``.zst``.

    Raises:
        VerificationError: a packed file that is damaged or cut short. Whole members cut
            off at their boundary leave no trace; the source's SHA-256 shows those.
    """
    try:
        if path.name.endswith(".gz"):
            with gzip.open(path, "rb") as packed:
                yield io.BufferedReader(packed)  # type: ignore[arg-type]
        elif path.name.endswith(".zst"):
            import pyarrow as pa

            with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, "zstd") as packed:
                yield io.BufferedReader(packed)
        else:
            with path.open("rb") as file:
                yield file
    except (EOFError, zlib.error, OSError) as error:
        raise VerificationError(
            f"{path}: damaged or cut short: {error}; fetch the source again"
        ) from None


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines of a text file with their numbers from 1; only LF ends a line.

    A byte order mark at the start is left out, as are the ends of line and lines that
    are blank (their numbers are not given to others).

    Raises:
        VerificationError: a line of more than ``LONGEST_ROW_BYTES``, or as ``opened``.
    """
    longest = LONGEST_ROW_BYTES
    with opened(path) as file:
        for number, line in enumerate(iter(partial(file.readline, longest + 1), b""), 1):
            if len(line) > longest:
                raise VerificationError(f"{path}: line {number} has over {longest:,} bytes")
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            line = line.strip(b" \t\r\n")
            if line:
                yield number, line


def read_text(path: Path) -> str:
    """A UTF-8 text without byte order mark, its ends of line made LF."""
    with opened(path) as file:
        data = file.read().removeprefix(BYTE_ORDER_MARK)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise VerificationError(f"{path}: byte {error.start} is not UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
