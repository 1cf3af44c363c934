"""Errors of the operating system in a stage's folders, as one line with what to do."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from instella.artifacts.workspace import Workspace
from instella.errors import KitError

_SPACE = (errno.ENOSPC, errno.EDQUOT)
_CURES = {
    _SPACE: "free some space and run it again",
    (errno.EACCES, errno.EPERM): "give this user the right to use it",
    (errno.EROFS,): "mount it for writing, or name another folder in config.yaml",
}
_SHAPE = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


@contextmanager
def plain_errors(stage: str, workspace: Workspace) -> Iterator[None]:
    """Within, a full disk, a missing right or a file in a folder's place is a ``KitError``.

    Args:
        stage: named in the line.
        workspace: where the stage runs.
    """
    try:
        yield
    except OSError as error:
        plain = _plain_error(stage, error, workspace)
        if plain is None:
            raise
        raise plain from error


def cure_of(error: OSError) -> str | None:
    """What is wrong with a disk or folder and what to do; None for other errors.

    A call on no file that is refused, such as ``os.setuid``, is a fault of the program, not of
    the disk; a write to an open file on a full disk names no file either, and is of the disk.
    """
    for numbers, cure in _CURES.items():
        if error.errno in numbers and (error.errno in _SPACE or error.filename is not None):
            what = "the disk is full" if error.errno in _SPACE else os.strerror(error.errno)
            return f"{what}; {cure}"
    return None


def _plain_error(stage: str, error: OSError, workspace: Workspace) -> KitError | None:
    where = Path(error.filename) if error.filename else workspace.store.root
    cure = cure_of(error)
    if cure is not None:
        return KitError(f"{stage}: {where}: {cure}")
    places = (workspace.store.root.absolute(), workspace.results.absolute())
    if error.errno in _SHAPE and any(where.absolute().is_relative_to(place) for place in places):
        return KitError(
            f"{stage}: {where}: a file stands where a folder is needed, or the other "
            "way round; move it away and run it again"
        )
    return None
