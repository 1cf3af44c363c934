"""Whether a checkpoint and then the end is wanted: by a signal, or by a moment set before.

A batch system warns before it kills: it sends SIGTERM (preemption, cancellation, time
limit), or SIGUSR1 where the site asks for that. Whoever starts the ranks also tells the
moment at which their time ends. Without that moment in the environment nothing here acts,
so that a run outside a batch system ends at once, as ever.
"""

import os
import signal
import threading
import time
from types import FrameType

STOP_AT = "INSTELLA_STOP_AT"
"""Variable with the moment, in seconds since 1970; ``inf`` for signals alone."""
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)

_asked = threading.Event()


def listen() -> None:
    """From here on the signals ask for a checkpoint instead of ending this process."""
    if STOP_AT in os.environ:
        for number in SIGNALS:
            signal.signal(number, _note)


def _note(number: int, frame: FrameType | None) -> None:
    _asked.set()


def may_be_wanted() -> bool:
    """Whether anything can ask; the same on every rank of a stage."""
    return STOP_AT in os.environ


def is_wanted() -> bool:
    """Whether a signal came, or the moment is past."""
    return _asked.is_set() or time.time() >= float(os.environ.get(STOP_AT, "inf"))
