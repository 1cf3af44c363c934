"""Sources: fetch pinned data and leave exactly the wanted files in a folder.

Each kind is one small module with a function ``fetch``; what arrives is compared with
the pins of the recipe before it is opened, and what differs is set aside.
"""

from collections.abc import Callable
from pathlib import Path

from instella.data.sources import file, generated, hub, package
from instella.errors import BadUse
from instella.recipe.settings import Source

Say = Callable[[str], None]


def fetch(
    source: Source,
    folder: Path,
    downloads: Path,
    recipe_folder: Path,
    say: Say,
    name: str | None = None,
) -> None:
    """Put the files of ``source`` under ``folder``.

    Args:
        source: where the data comes from, with its pins.
        folder: existing, empty folder; afterwards it holds the wanted files and no others.
        downloads: folder where archives stay once fetched; made when missing.
        recipe_folder: folder that the path of a ``file`` source is relative to.
        say: takes a line of progress.
        name: of the source in the recipe, for messages.

    Raises:
        BadUse: the recipe lacks a pin or asks for something the kind does not have.
        VerificationError: bytes differ from their pin, or cannot be had.
    """
    if source.kind == "package":
        package.fetch(source, folder, downloads, say)
    elif source.kind == "generated":
        generated.fetch(source, folder, say)
    elif source.kind == "file":
        file.fetch(source, folder, recipe_folder)
    elif source.kind == "hub":
        hub.fetch(source, folder, downloads, recipe_folder, say, name)
    else:
        raise BadUse(f"source kind {source.kind!r}: not one of package, generated, file, hub")
