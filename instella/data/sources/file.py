"""Source kind ``file``: one file beside the recipe."""

from pathlib import Path

from instella.canonical import sha256_file
from instella.data.sources.checks import beside, check_hex, copy_file, require
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Source


def fetch(source: Source, folder: Path, recipe_folder: Path) -> None:
    """Copy the file under its own name; its SHA-256 must be the recipe's.

    Raises:
        BadUse: a path that leads out of the recipe's folder, or no such file.
        VerificationError: other bytes than pinned (the file is left alone: it is the user's).
    """
    require(source, "path", "sha256")
    assert source.path is not None and source.sha256 is not None
    check_hex(source.sha256, 64, "sha256")
    path = beside(recipe_folder, source.path, "path")
    if not path.is_file():
        raise BadUse(f"{path}: no such file; correct the source's path in the recipe")
    target = folder / path.name
    copy_file(path, target)
    # The copy is what is hashed: the original may change at any moment.
    found = sha256_file(target)
    if found != source.sha256:
        raise VerificationError(
            f"{path}: SHA-256 is {found}, the recipe expects {source.sha256}; "
            "restore the file or pin the new hash"
        )
