"""Locks between processes. The kernel lets go of them when a process dies, however it dies."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def nobody_waits() -> None:
    """Tells nobody that a lock is waited for."""


@contextmanager
def hold(
    path: Path, waiting: Callable[[], None] = nobody_waits, shared: bool = False
) -> Iterator[None]:
    """Hold the lock file ``path``, which is made if it is missing.

    Args:
        path: the lock file.
        waiting: called once if somebody else has the lock.
        shared: with others who share it, and without anybody who does not.
    """
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, mode)
        yield


@contextmanager
def hold_if_free(path: Path) -> Iterator[bool]:
    """Hold the lock file ``path`` and tell whether that was possible without waiting."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
