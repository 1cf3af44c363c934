"""Passing trouble with a server, and how long to bear with it."""

import threading
from collections.abc import Callable

from instella.errors import KitError, VerificationError

# One minute in all: a server that restarts is back by then.
WAIT_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
# 7 seconds in all, for a person who waits for a list and is most likely offline.
SILENT_WAITS = 3
# The hub counts requests in windows of five minutes.
LONGEST_WAIT_SECONDS = 600.0
# So much must arrive before earlier failures are forgiven: less is no way to get on.
FORGIVEN_AFTER_BYTES = 1 << 20


class Trouble(Exception):
    """A failure that may pass.

    Args:
        reason: for the message.
        retry_after: seconds that the server asks to wait.
        is_silent: no server has answered this process yet.
    """

    def __init__(
        self, reason: str, retry_after: float | None = None, is_silent: bool = False
    ) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.is_silent = is_silent


class Stopped(Exception):
    """Another file failed, or the user ended the run: no more waiting."""


class NoAccess(KitError):
    """The hub does not let this user read the repository."""


class Unreadable(VerificationError):
    """Rows and columns of a file cannot be learned from the bytes at hand."""


class Patience:
    """Waits longer after each failure without progress, and at last gives up.

    Args:
        stop: ends a wait early.
        what: file or repository, for the message.
        say: takes a line before each wait.
        silent_waits: gives up after so many where no server has ever answered.
    """

    def __init__(
        self,
        stop: threading.Event,
        what: str,
        say: Callable[[str], None] = lambda line: None,
        silent_waits: int | None = None,
    ) -> None:
        self._stop = stop
        self._what = what
        self._say = say
        self._silent_waits = silent_waits
        self._failures = 0
        self._received = 0

    def progress(self, count: int) -> None:
        """Tell that ``count`` new bytes arrived."""
        self._received += count
        if self._received >= FORGIVEN_AFTER_BYTES:
            self._failures, self._received = 0, 0

    def wait(self, trouble: Trouble) -> None:
        """Wait before the next attempt.

        Raises:
            VerificationError: too many failures, or the server asks for too long a wait.
            Stopped: the run ends.
        """
        again = "what has arrived is kept: run it again later"
        asked = trouble.retry_after or 0.0
        if asked > LONGEST_WAIT_SECONDS:
            raise VerificationError(
                f"{self._what}: {trouble}, which asks to wait {asked:,.0f} s; {again}"
            )
        waits = len(WAIT_SECONDS)
        if trouble.is_silent and self._silent_waits is not None:
            waits = min(waits, self._silent_waits)
        if self._failures >= waits:
            raise VerificationError(
                f"{self._what}: {trouble}, {self._failures + 1} times; check the network and "
                f"HF_ENDPOINT; {again}"
            )
        seconds = max(WAIT_SECONDS[self._failures], asked)
        self._failures += 1
        self._say(f"{self._what}: {trouble}; asking again in {seconds:,g} s")
        if self._stop.wait(seconds):
            raise Stopped
