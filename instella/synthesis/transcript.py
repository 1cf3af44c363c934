"""What a remote teacher said, kept so that it can be said again: request hash to reply.

A language model on other machines does not give the same bytes twice. Its replies are
therefore part of the artifact (``transcript.jsonl``), and everything behind them follows
from them: with the same replies a stage makes the same bytes.
"""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes, parse_json
from instella.errors import VerificationError

FILE = "transcript.jsonl"
_KEYS = {"finish_reason", "reply", "request"}


class Transcript:
    """Replies by request, on disk; safe for several threads.

    Args:
        path: a file of lines ``{"finish_reason", "reply", "request"}``. Made when missing
            and ``writable``; then a last line that a kill cut short is removed.
        writable: whether replies may be added.

    Raises:
        VerificationError: a damaged line, or no such file to read.
    """

    def __init__(self, path: Path, writable: bool) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._places: dict[str, int] = {}
        if writable:
            path.touch()
        elif not path.is_file():
            raise VerificationError(f"{path}: no such transcript; point to the folder of a run")
        self._file = path.open("r+b" if writable else "rb")
        self._read_places(writable)

    def _read_places(self, writable: bool) -> None:
        place = 0
        for number, line in enumerate(self._file, 1):
            if writable and not line.endswith(b"\n"):
                break
            entry = _entry(line, f"{self._path}, line {number}")
            self._places.setdefault(entry["request"], place)
            place += len(line)
        if writable:
            self._file.truncate(place)

    def get(self, request: str) -> dict[str, Any] | None:
        """The entry of a request, or None."""
        with self._lock:
            place = self._places.get(request)
            if place is None:
                return None
            self._file.seek(place)
            entry: dict[str, Any] = parse_json(self._file.readline(), str(self._path))
            return entry

    def add(self, request: str, reply: str, finish_reason: str) -> None:
        """Keep a reply; on the disk, as far as a kill of this process goes, on return."""
        entry = {"finish_reason": finish_reason, "reply": reply, "request": request}
        with self._lock:
            if request in self._places:
                return
            self._places[request] = self._file.seek(0, 2)
            self._file.write(json_bytes(entry))
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _entry(line: bytes, where: str) -> dict[str, Any]:
    # Half a surrogate pair has no UTF-8.
    with suppress(VerificationError, UnicodeEncodeError):
        entry = parse_json(line, where)
        has_keys = isinstance(entry, dict) and entry.keys() == _KEYS
        is_text = has_keys and all(isinstance(value, str) for value in entry.values())
        if is_text and json_bytes(entry) == line:
            return dict(entry)
    raise VerificationError(f"{where}: not a reply of a teacher; remove the file to ask again")
