"""The version of the kit, and the commit of the checkout it lies in."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

from instella.artifacts.identity import PACKAGE_FOLDER

DISTRIBUTION = "instella-kit"
SHOWN = 9

_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def version(project: Path = PACKAGE_FOLDER.parent) -> str:
    """Version of the project folder, or of the installed package, with the commit if known.

    The commit is the one checked out; files may have been edited since.
    """
    file = project / "pyproject.toml"
    if not file.is_file():
        return metadata.version(DISTRIBUTION)
    number = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["version"]
    commit = _commit(project / ".git")
    return f"{number} (commit {commit[:SHOWN]})" if commit else number


def _commit(git: Path) -> str | None:
    """The commit that HEAD names, read without git; None if that takes more than two files."""
    head = _text(git / "HEAD")
    reference = head.removeprefix("ref: ")
    if reference == head:
        return head if _COMMIT.fullmatch(head) else None
    commit = _text(git / reference)
    if not commit:
        found = re.search(rf"(?m)^(\S+) {re.escape(reference)}$", _text(git / "packed-refs"))
        commit = found.group(1) if found else ""
    return commit if _COMMIT.fullmatch(commit) else None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""
