"""Copies of the project in which a recipe runs as a user would run it.

A copy uses the packages of the Python that runs this module: its ``.venv`` is one script
that starts that Python, so nothing is installed again.
"""

import fnmatch
import hashlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from instella.artifacts.identity import PACKAGE_FOLDER

PROJECT = PACKAGE_FOLDER.parent
NONE: Mapping[str, str] = MappingProxyType({})


def clone(target: Path, recipe: str = "recipes/tiny.yaml") -> Path:
    """``copy_project`` that shares the project's downloads folder; returns ``target``."""
    copy_project(target, recipe)
    downloads = PROJECT / "downloads"
    downloads.mkdir(exist_ok=True)
    (target / "downloads").symlink_to(downloads)
    return target


def copy_project(target: Path, recipe: str, python_variables: Mapping[str, str] = NONE) -> None:
    """Copy the project's own files to ``target``, which must not exist.

    What ``.gitignore`` names stays behind.

    Args:
        target: the new folder.
        recipe: recipe file that its ``config.yaml`` names.
        python_variables: variables that its Python starts with. ``kit`` drops what a user
            sets for another Python; these come after it.
    """
    shutil.copytree(PROJECT, target, ignore=_ignored, symlinks=True)
    replace_in(target / "config.yaml", r"(?m)^recipe: .*$", f"recipe: {recipe}")
    _borrow_python(target, python_variables)


def _ignored(folder: str, names: list[str]) -> set[str]:
    patterns = (PROJECT / ".gitignore").read_text(encoding="utf-8").split()
    at_root = Path(folder) == PROJECT
    left_out = {".git"} & set(names)
    for pattern in patterns:
        if not pattern.startswith("/") or at_root:
            left_out.update(fnmatch.filter(names, pattern.strip("/")))
    return left_out


def _borrow_python(target: Path, variables: Mapping[str, str]) -> None:
    """Make ``kit`` in ``target`` find a set-up ``.venv``: this Python under its name."""
    lend_python(target / ".venv", Path(sys.executable), variables)
    lock = (target / "requirements" / "run.lock").read_bytes()
    stamp = f"{hashlib.sha256(lock).hexdigest()}  -\n"
    (target / ".venv" / "run.stamp").write_text(stamp, encoding="utf-8")


def lend_python(folder: Path, python: Path, variables: Mapping[str, str] = NONE) -> None:
    """Make a new folder look like an environment: its Python is a script that starts another.

    Args:
        folder: of the environment.
        python: the Python that is started.
        variables: that it starts with.
    """
    script = folder / "bin" / "python"
    script.parent.mkdir(parents=True)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines = ["#!/bin/sh", *exports, f'exec {shlex.quote(str(python))} "$@"', ""]
    script.write_text("\n".join(lines), encoding="utf-8")
    script.chmod(0o755)


def replace_in(path: Path, pattern: str, replacement: str) -> None:
    """Replace the one place in a text file that matches; ValueError for none or several."""
    text, count = re.subn(pattern, lambda _: replacement, path.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{path}: {pattern!r} matches {count} times, expected once")
    path.write_text(text, encoding="utf-8")


def share_archives(source: Path, target: Path) -> None:
    """Give ``target`` the archives of ``source`` that it lacks, as hard links or copies.

    Lock files stay behind: each user needs lock files of their own.
    """
    target.mkdir(parents=True, exist_ok=True)
    if not source.is_dir():
        return
    for path in sorted(source.iterdir()):
        other = target / path.name
        if not path.is_file() or path.suffix == ".lock" or other.exists():
            continue
        try:
            os.link(path, other)
        except OSError:
            shutil.copyfile(path, other)
