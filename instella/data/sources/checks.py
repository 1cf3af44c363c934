"""What every kind of source checks: pins, hashes and places."""

import os
import shutil
from pathlib import Path

from instella.canonical import sha256_file
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Source

HEX_DIGITS = frozenset("0123456789abcdef")


def require(source: Source, *fields: str) -> None:
    """BadUse unless every named field of ``source`` has a value."""
    missing = [name for name in fields if getattr(source, name) in (None, ())]
    if missing:
        raise BadUse(f"source of kind {source.kind}: set {', '.join(missing)} in the recipe")


def check_hex(value: str, digits: int, what: str) -> str:
    """``value`` if it is so many lower-case hex digits, else BadUse."""
    if len(value) != digits or not set(value) <= HEX_DIGITS:
        raise BadUse(f"{what} {value!r}: need {digits} lower-case hex digits")
    return value


def beside(recipe_folder: Path, name: str, what: str) -> Path:
    """The path of a file that a recipe names, in the recipe's folder whatever links lie there.

    Args:
        recipe_folder: folder of the recipe file.
        name: relative path.
        what: names it in the error.

    Raises:
        BadUse: it leads out of the folder.
    """
    path = recipe_folder / name
    if Path(name).is_absolute() or not path.resolve().is_relative_to(recipe_folder.resolve()):
        raise BadUse(f"{what} {name!r} leads out of the recipe's folder; keep the file in there")
    return path


def check_hash(path: Path, expected: str, downloads: Path) -> None:
    """Compare a fetched file with its pin; a wrong one becomes ``downloads/NAME.bad``.

    Raises:
        VerificationError: names the expected and the found SHA-256.
    """
    found = sha256_file(path)
    if found != expected:
        bad = quarantine(path, downloads)
        raise VerificationError(
            f"{path.name}: SHA-256 is {found}, the recipe expects {expected}; "
            f"kept as {bad} for inspection"
        )


def quarantine(path: Path, folder: Path) -> Path:
    """Rename ``path`` to ``folder/NAME.bad`` (an older one is replaced); the new path."""
    bad = folder / f"{path.name}.bad"
    os.replace(path, bad)
    return bad


def copy_file(path: Path, target: Path) -> None:
    """Copy verified bytes into a source's folder, making the folders on the way."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
