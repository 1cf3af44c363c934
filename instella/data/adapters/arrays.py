"""The objects of a JSON array, one at a time: a file of any size in little memory."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from instella.data.adapters.files import BYTE_ORDER_MARK, LONGEST_ROW_BYTES
from instella.errors import VerificationError

CHUNK_BYTES = 1 << 20
BLANKS = b" \t\r\n"
# Texts as a whole, so that brackets inside them do not count; a quote alone begins a text
# that ends behind the bytes read so far.
MARK = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)


class _Window:
    """The bytes of a file from the place that was reached on."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.data = file.read(len(BYTE_ORDER_MARK)).removeprefix(BYTE_ORDER_MARK)
        self.at = 0

    def more(self) -> bool:
        """Read on; False at the end of the file."""
        chunk = self._file.read(CHUNK_BYTES)
        self.data = self.data[self.at :] + chunk
        self.at = 0
        return bool(chunk)

    def sign(self) -> bytes:
        """The next byte that is not blank, left where it is; nothing at the end."""
        while True:
            while self.at < len(self.data):
                if self.data[self.at] not in BLANKS:
                    return self.data[self.at : self.at + 1]
                self.at += 1
            if not self.more():
                return b""

    def take(self) -> bytes:
        """The next sign, consumed."""
        sign = self.sign()
        self.at += len(sign)
        return sign

    def object(self, where: str) -> bytes:
        """The bytes of the object that begins here, consumed."""
        depth, scanned = 0, self.at
        while True:
            for mark in MARK.finditer(self.data, scanned):
                scanned = mark.end()
                if mark[0] == b'"':
                    scanned -= 1
                    break
                depth += (mark[0] in b"{[") - (mark[0] in b"}]")
                if depth == 0:
                    found = self.data[self.at : scanned]
                    self.at = scanned
                    return found
            else:
                scanned = len(self.data)
            if len(self.data) - self.at > LONGEST_ROW_BYTES:
                raise VerificationError(f"{where}: an object of over {LONGEST_ROW_BYTES:,} bytes")
            scanned -= self.at
            if not self.more():
                raise VerificationError(f"{where}: the file is cut short; fetch the source again")


def begins_array(file: BinaryIO) -> bool:
    """Whether the first sign of a file is an opening square bracket."""
    return _Window(file).sign() == b"["


def array_objects(file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """The objects of the file's one array, with their numbers from 1, not yet parsed.

    Args:
        file: at its start; a byte order mark is skipped.
        name: of the file, for errors.

    Raises:
        VerificationError: something else than objects in one array, or a cut file.
    """
    window = _Window(file)
    if window.sign() != b"[":
        raise VerificationError(f"{name}: need a list of objects")
    window.take()
    number = 0
    while number or window.sign() != b"]":
        number += 1
        where = f"{name}#{number}"
        sign = window.sign()
        if sign == b"":
            raise VerificationError(f"{where}: the file is cut short; fetch the source again")
        if sign != b"{":
            raise VerificationError(f"{where}: the row is not an object")
        yield number, window.object(where)
        if window.sign() == b"]":
            break
        sign = window.take()
        if sign != b",":
            what = "the file is cut short" if sign == b"" else f"{sign!r} instead of a comma"
            raise VerificationError(f"{where}: behind it, {what}; fetch the source again")
    window.take()
    if window.sign():
        raise VerificationError(f"{name}: there is something behind the list of objects")
