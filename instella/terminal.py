"""What others wrote, on a terminal: it stays text, and in its line."""

import json
import unicodedata
from typing import TextIO

MAX_SHOWN = 400
# Controls, marks that turn or hide what stands beside them, halves of characters, line ends.
_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def plain(text: str) -> str:
    """A foreign name or value for a line of ours: quoted when it is not all printable, and cut."""
    shown = text if text.isprintable() else ascii(text)
    more = len(shown) - MAX_SHOWN
    return shown if more <= 0 else f"{shown[:MAX_SHOWN]}... ({more} characters more)"


class Plain:
    """A text stream on which nothing steers a terminal; all else is the stream's own.

    Characters that would stand as JSON writes them in ASCII, so a line of JSON keeps its value.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text; line feeds and tabs are kept."""
        if not text.isprintable():
            text = "".join(map(_harmless, text))
        return self._stream.write(text)


def _harmless(letter: str) -> str:
    if letter in "\n\t" or unicodedata.category(letter) not in _STEERING:
        return letter
    return json.dumps(letter)[1:-1]
