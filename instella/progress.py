"""Progress of a long step: one changing line on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

LINE_EVERY_SECONDS = 5.0
# Before so much time has passed, rates are noise.
RATE_AFTER_SECONDS = 0.5


class Reporter:
    """Prints progress of one stage to stderr and, when given, to a log file.

    Args:
        stage: name shown at the start of each line.
        log: file that gets the plain lines too.
        clock: seconds that only grow; for tests.
    """

    def __init__(
        self,
        stage: str,
        log: Path | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage = stage
        self._stream = stream if stream is not None else sys.stderr
        self._log = log
        self._clock = clock
        self._started: tuple[float, int] | None = None
        self._last = float("-inf")
        self._open_line = False

    def say(self, text: str) -> None:
        """Print one line."""
        self._end_line()
        self._line(f"{self._stage}: {text}")

    def relay(self, line: str) -> None:
        """Print a line of another process as it is."""
        self._end_line()
        self._line(line)

    def step(self, step: int, total: int, tokens: int = 0, **figures: float) -> None:
        """Tell that ``step`` of ``total`` is done.

        Args:
            step: steps done so far, counted from the stage's first step.
            total: steps of the whole stage.
            tokens: tokens handled since this process started, for tokens/s.
            figures: loss and the like, shown with four digits.
        """
        now = self._clock()
        if self._started is None:
            self._started = (now, step - 1)
        start, first = self._started
        elapsed = now - start
        parts = [f"step {step}/{total}"]
        parts += [f"{name} {value:.4g}" for name, value in figures.items()]
        if tokens and elapsed >= RATE_AFTER_SECONDS:
            parts.append(f"{tokens / elapsed:,.0f} tokens/s")
        if elapsed >= RATE_AFTER_SECONDS:
            parts.append(f"{span(elapsed / max(step - first, 1) * (total - step))} left")
        text = f"{self._stage}: " + "  ".join(parts)
        if self._stream.isatty():
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
            self._open_line = True
        if now - self._last >= LINE_EVERY_SECONDS or step == total:
            self._last = now
            self._line(text, terminal=not self._stream.isatty())
        if step == total:
            self._end_line()

    def _line(self, text: str, terminal: bool = True) -> None:
        if terminal:
            self._stream.write(text + "\n")
            self._stream.flush()
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(text + "\n")

    def _end_line(self) -> None:
        if self._open_line:
            self._stream.write("\n")
            self._open_line = False


def span(seconds: float) -> str:
    """A time in words: the two largest units of hours, minutes and seconds."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
