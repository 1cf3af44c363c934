"""Source kind ``hub``: files of a Hugging Face repository at one commit, as a lock names them."""

from collections.abc import Callable
from pathlib import Path

from instella.data.sources.checks import beside, check_hex, require
from instella.data.sources.hub_download import fetch_repository
from instella.data.sources.hub_lock import Lock, LockedFile, read_lock
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Source

Say = Callable[[str], None]


def fetch(
    source: Source,
    folder: Path | None,
    downloads: Path,
    recipe_folder: Path,
    say: Say,
    name: str | None = None,
) -> dict[str, LockedFile]:
    """Fetch the wanted files, verify each against the lock, copy them to ``folder``.

    Args:
        source: with repository, revision, lock and patterns of files.
        folder: existing folder; None: the files stay in ``downloads`` and no more.
        downloads: folder that keeps what was fetched.
        recipe_folder: folder that the lock's path is relative to.
        say: takes lines of progress.
        name: of the source in the recipe, for messages.

    Returns:
        the wanted files, sorted by path.

    Raises:
        BadUse: no revision or no lock is pinned, or the two do not belong together.
        VerificationError: a file that cannot be had, or whose bytes differ from the lock.
    """
    lock = source_lock(source, recipe_folder, name)
    names = fetch_repository(lock, folder, downloads, say, source.files or ("*",))
    return {path: lock.files[path] for path in names}


def source_lock(source: Source, recipe_folder: Path, name: str | None = None) -> Lock:
    """The lock that a source names, checked against the source's own pins."""
    require(source, "repository")
    what = name or str(source.repository)
    first = f"run `instella data lock {what}` first"
    if source.revision is None:
        raise BadUse(f"{what}: no revision of {source.repository} is pinned; {first}")
    check_hex(source.revision, 40, f"{what}: revision")
    if source.lock is None:
        raise BadUse(f"{what}: no lock of {source.repository} is named; {first}")
    path = beside(recipe_folder, source.lock, f"{what}: lock")
    if not path.is_file():
        raise BadUse(f"{what}: {path}: no such lock file; {first}")
    lock = read_lock(path)
    if (lock.repository, lock.repository_type) != (source.repository, source.repository_type):
        raise VerificationError(
            f"{path}: locks the {lock.repository_type} {lock.repository}, source {what} is the "
            f"{source.repository_type} {source.repository}; name its own lock"
        )
    if "*" not in lock.patterns and not set(source.files or ("*",)) <= set(lock.patterns):
        # A file that was not listed would be missing without a word.
        raise VerificationError(
            f"{path}: lists only files that match {' '.join(lock.patterns)}, source {what} wants "
            f"{' '.join(source.files or ('*',))}; run `instella data lock {what} --revision "
            f"{source.revision}`"
        )
    if lock.commit != source.revision:
        raise VerificationError(
            f"{path}: locks commit {lock.commit}, source {what} pins {source.revision}; make "
            f"them the same, or run `instella data lock {what} --revision {source.revision}`"
        )
    return lock
