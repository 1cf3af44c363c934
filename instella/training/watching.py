"""Looks after the ranks that rank 0 started: notices those that are gone or stay stopped, and
tells why one is gone.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple

import psutil

from instella import errors
from instella.training.joining import AGAIN, says_peer

END_SECONDS = 30.0
STARTED = "started"
# A rank that somebody stopped keeps its connections, so the others would wait for it.
STOPPED_SECONDS = 120.0
LOOK_SECONDS = 1.0


class Child(NamedTuple):
    """A rank that was started, and the pipe on which it says ``STARTED`` or what it died of."""

    rank: int
    process: BaseProcess
    pipe: connection.Connection


@contextmanager
def watched(children: list[Child]) -> Iterator[None]:
    """See to it that a rank which is gone or stays stopped is noticed by the others."""
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(children, over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _watch(children: list[Child], over: threading.Event) -> None:
    """Look at the ranks once a second. Looks are counted, since this process may be stopped too.

    A group may wait for ever for a rank that dies while it forms, whatever its limit; when
    all others are gone too, it does not.
    """
    stopped = dict.fromkeys((child.rank for child in children), 0)
    lost = 0
    while not over.wait(LOOK_SECONDS):
        for child in children:
            stopped[child.rank] = stopped[child.rank] + 1 if _is_stopped(child) else 0
            if stopped[child.rank] * LOOK_SECONDS >= STOPPED_SECONDS:
                child.process.kill()
        lost = lost + 1 if any(child.process.exitcode for child in children) else 0
        if lost * LOOK_SECONDS >= END_SECONDS:
            for child in children:
                child.process.kill()


def _is_stopped(child: Child) -> bool:
    try:
        return str(psutil.Process(child.process.pid).status()) == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


def raise_report(child: Child) -> None:
    """Take a rank's first message; raises what it died of, unless it says ``STARTED``."""
    try:
        message = child.pipe.recv()
    except EOFError:
        child.process.join(END_SECONDS)
        raise _ended(child) from None
    if message != STARTED:
        raise _reported(child, message)


def cause(children: list[Child], lost: RuntimeError) -> errors.KitError:
    """Why rank 0 lost a rank: what one reported, ours before torch's, or how it ended."""
    _wait_for_causes([child.process for child in children])
    found: list[errors.KitError] = []
    for child in children:
        message = None
        with suppress(EOFError):  # a rank that was killed leaves no message
            message = child.pipe.recv() if child.pipe.poll() else None
        if message is None and child.process.exitcode:
            found.insert(0, _ended(child))
        elif message is not None and not says_peer(*message):
            error = _reported(child, message)
            found.insert(0 if message[0] in vars(errors) else len(found), error)
    if found:
        return found[0]
    return errors.KitError(f"a rank is gone or does not answer ({_one_line(str(lost))}): {AGAIN}")


def _wait_for_causes(processes: list[BaseProcess]) -> None:
    """Until all have ended, or one was killed, which is cause enough; not for ever."""
    deadline = time.monotonic() + END_SECONDS
    while alive := [process.sentinel for process in processes if process.exitcode is None]:
        if any((process.exitcode or 0) < 0 for process in processes):
            return
        if not connection.wait(alive, max(0.0, deadline - time.monotonic())):
            return


def _reported(child: Child, message: tuple[str, str]) -> errors.KitError:
    name, text = message
    kind = vars(errors).get(name)
    if isinstance(kind, type) and issubclass(kind, errors.KitError):
        return kind(text)
    return errors.KitError(f"rank {child.rank}: {name}: {_one_line(text)}")


def _ended(child: Child) -> errors.KitError:
    return errors.KitError(
        f"rank {child.rank} ended with status {child.process.exitcode} and no message: {AGAIN}"
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
