"""Errors of the operating system in a stage's folders, as one line with what to do."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from instella.artifacts.workspace import Workspace
from instella.errors import KitError

_SPACE = (errno.ENOSPC, errno.EDQUOT)
_RIGHTS = (errno.EACCES, errno.EPERM, errno.EROFS)
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


def _plain_error(stage: str, error: OSError, workspace: Workspace) -> KitError | None:
    where = Path(error.filename) if error.filename else workspace.store.root
    if error.errno in _SPACE:
        return KitError(f"{stage}: {where}: the disk is full; free some space and run it again")
    if error.errno in _RIGHTS:
        return KitError(
            f"{stage}: {where}: {os.strerror(error.errno)}; give this user the right to use it"
        )
    places = (workspace.store.root.absolute(), workspace.results.absolute())
    if error.errno in _SHAPE and any(where.absolute().is_relative_to(place) for place in places):
        return KitError(
            f"{stage}: {where}: a file stands where a folder is needed, or the other "
            "way round; move it away and run it again"
        )
    return None
