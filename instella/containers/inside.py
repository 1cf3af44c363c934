"""The part of a confined job that runs in the container."""

import errno
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from instella.containers.walls import KIT, OUTPUT, SCRATCH
from instella.errors import KitError, MachineError

_WALLED = (errno.EROFS, errno.EACCES, errno.EPERM)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OWN = (OUTPUT, SCRATCH, KIT)
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL)


def end_with_caller() -> None:
    """End this process when its standard input closes: whoever runs the stage is gone.

    Everything else in the container ends with it.
    """

    def watch() -> None:
        while os.read(0, 1 << 16):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="caller").start()


@contextmanager
def explained(stage: str) -> Iterator[None]:
    """Turn what runs into a wall of the container into one line that names the wall."""
    try:
        yield
    except KitError:
        raise
    except Exception as error:
        for cause in _causes(error):
            line = _line(cause)
            if line is not None:
                is_full = isinstance(cause, OSError) and cause.errno in _FULL
                kind = MachineError if is_full else KitError
                raise kind(f"{stage}: {line}") from error
        raise


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was made from, as libraries tell it."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        item = waiting.pop(0)
        if isinstance(item, BaseException) and id(item) not in seen:
            seen.add(id(item))
            yield item
            waiting += [item.__cause__, item.__context__, getattr(item, "reason", None), *item.args]


def _line(error: BaseException) -> str | None:
    if isinstance(error, socket.gaierror):
        return "tried to reach the network, which no stage has in a container"
    if not isinstance(error, OSError):
        return None
    if error.errno in _UNREACHABLE:
        return "tried to reach the network, which no stage has in a container"
    if error.errno in _FULL:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{os.strerror(error.errno)}: the disk is full; free some space and run again"
    if error.errno in _WALLED and error.filename is not None:
        return (
            f"{error.filename}: {os.strerror(error.errno)}: a stage in a container writes to its "
            "output, its scratch folder and /tmp only"
        )
    if error.errno == errno.ENOENT and _is_walled_off(error.filename):
        return (
            f"{error.filename}: there is no such file in the container, which shows a stage its "
            "own inputs only"
        )
    return None


def _is_walled_off(name: object) -> bool:
    """A path whose absence may be the container's doing: not one of the stage's own places."""
    if not isinstance(name, str | bytes):
        return False
    path = Path(os.path.abspath(os.fsdecode(name)))
    # A host's path may begin with /tmp too; then the folder is missing as well.
    is_temporary = path.is_relative_to("/tmp") and path.parent.is_dir()
    return not is_temporary and not any(path.is_relative_to(place) for place in _OWN)
