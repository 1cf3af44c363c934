"""Can a run's files lie where they have to? Asked before anything runs."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from instella.artifacts import journal
from instella.artifacts.manifest import NAME
from instella.artifacts.store import Store, state_of
from instella.errors import KitError

# Folders beside those of the stages, and files that the workflow writes.
LOGS, BENCHMARKS = "logs", "benchmarks"
BESIDE = (LOGS, BENCHMARKS, journal.FOLDER)
TABLE, ROOT = "table.md", "root"
# A folder beside those of the stages too, but no run writes in it (instella.statements).
STATEMENTS = "statements"


def check_shape(results: Path, stages: Iterable[str]) -> None:
    """Refuse what stands in the way of a folder or a file of a run.

    Args:
        results: folder of one recipe's results; may be missing.
        stages: names of the stages.

    Raises:
        KitError: the first obstacle, and what to do.
    """
    names = list(stages)
    for folder in _folders(results, names):
        _check(folder, stat.S_ISDIR, "folder")
    for file in _files(results, names):
        _check(file, stat.S_ISREG, "file")


def check_rights(results: Path, store: Store, stages: Iterable[str]) -> None:
    """Make the folder of results; refuse folders of a run that this user may not write in.

    Arguments as for ``check_shape``.

    Raises:
        KitError: the first such folder, and what to do.
    """
    cure = "change its owner or rights, or choose other folders in config.yaml"
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise KitError(f"{results}: cannot be made ({error.strerror}); {cure}") from None
    for folder in (store.root, *_folders(results, list(stages))):
        # As given: what lies above the folder this runs in may be closed to the user.
        place = next(path for path in (folder, *folder.parents) if _is_there(path))
        if not os.access(place, os.W_OK | os.X_OK):
            raise KitError(f"{place}: this user may not write here; {cure}")


def _is_there(path: Path) -> bool:
    return os.access(path, os.F_OK)


def _folders(results: Path, names: list[str]) -> Iterator[Path]:
    yield results.parent
    yield results
    for name in (*names, *BESIDE):
        yield results / name


def _files(results: Path, names: list[str]) -> Iterator[Path]:
    yield results / TABLE
    yield results / ROOT
    for name in names:
        yield results / name / NAME
        yield results / LOGS / f"{name}.log"
        yield results / BENCHMARKS / f"{name}.tsv"


def _check(path: Path, is_right: Callable[[int], bool], wanted: str) -> None:
    own = state_of(path)
    if own is None:
        return
    try:
        found = path.stat()
    except OSError:
        raise KitError(
            f"{path}: a link that leads nowhere stands where a {wanted} is needed; remove it"
        ) from None
    if not is_right(found.st_mode):
        kinds = {stat.S_IFDIR: "folder", stat.S_IFREG: "file"}
        other = kinds.get(stat.S_IFMT(found.st_mode), "special file")
        raise KitError(f"{path}: a {other} stands where a {wanted} is needed; move it away")
