"""Progress of a download in bytes."""

import threading
import time
from collections.abc import Callable

LINE_EVERY_SECONDS = 5.0
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


class ByteProgress:
    """Says every few seconds how much is done; shared by threads.

    Args:
        name: shown at the start of each line.
        total: bytes of all files.
        say: takes a line.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        name: str,
        total: int,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._total = total
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()
        self._started = self._shown = clock()
        self._done = 0
        self._received = 0

    def here(self, count: int) -> None:
        """``count`` bytes were there already."""
        with self._lock:
            self._done += count

    def back(self, count: int) -> None:
        """``count`` bytes turned out to be of no use."""
        with self._lock:
            self._done -= count

    def add(self, count: int) -> None:
        """``count`` bytes arrived."""
        with self._lock:
            self._done += count
            self._received += count
            now = self._clock()
            if now - self._shown < LINE_EVERY_SECONDS:
                return
            self._shown = now
            rate = self._received / (now - self._started)
            left = max(self._total - self._done, 0) / rate
            self._say(
                f"{self._name}: {size_text(self._done)} of {size_text(self._total)}, "
                f"{size_text(rate)}/s, {left:,.0f} s left"
            )

    def say(self, text: str) -> None:
        """Print a line about one file."""
        with self._lock:
            self._say(f"{self._name}: {text}")

    def end(self) -> None:
        """Print what it came to, if anything arrived."""
        if self._received:
            seconds = max(self._clock() - self._started, 1e-9)
            self.say(
                f"{size_text(self._total)} verified, {size_text(self._received)} of them fetched "
                f"at {size_text(self._received / seconds)}/s"
            )


def size_text(count: float) -> str:
    """Bytes with a decimal unit and three digits: ``1.23 GB``."""
    for scale, unit in _UNITS:
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} bytes"
