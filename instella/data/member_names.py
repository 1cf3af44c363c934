"""Names of files inside a source: safe ones, and those that match a pattern."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from instella.errors import VerificationError


def check_name(name: str, where: str) -> str:
    """``name`` if it is a plain relative path with forward slashes.

    Raises:
        VerificationError: absolute, climbing (``..``), with a backslash, a drive or a
            control character; such a name could be written outside its folder.
    """
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") for part in parts)
    if not plain or "\\" in name or parts[0].endswith(":") or any(ord(c) < 32 for c in name):
        raise VerificationError(f"{where}: unsafe file name {name!r}; do not use this archive")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise VerificationError(f"{where}: file name {name!r} is not Unicode") from None
    return name


def matching(names: Iterable[str], patterns: Iterable[str], where: str) -> list[str]:
    """Names that equal a pattern or match it (``*``, ``?``, ``[...]``; ``*`` crosses ``/``).

    Returns:
        the names, sorted, each once.

    Raises:
        VerificationError: a pattern that matches nothing.
    """
    available = sorted(set(names))
    wanted: set[str] = set()
    for pattern in patterns:
        found = [n for n in available if n == pattern or fnmatchcase(n, pattern)]
        if not found:
            raise VerificationError(f"{where}: no file matches {pattern!r}; correct the recipe")
        wanted.update(found)
    return sorted(wanted)
