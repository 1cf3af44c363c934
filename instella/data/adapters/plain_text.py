"""Adapter ``plain_text``: UTF-8 files become texts, whole or by blocks.

Options: ``files`` (patterns; default every .txt, .md, .rst and .tex file), ``split``
(``blocks``: at blank lines, the default; ``whole``: one document a file).
"""

import re
from collections.abc import Iterator
from pathlib import Path

from instella.data.adapters.files import read_text, source_files
from instella.data.adapters.options import Options
from instella.data.documents import Text
from instella.recipe.settings import Part

SUFFIXES = (".txt", ".md", ".rst", ".tex")
BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")


def read(part: Part, folder: Path) -> Iterator[Text]:
    """One ``Text`` a block (key ``path#number``, from 1) or a file (key ``path``)."""
    options = Options(part)
    patterns = options.texts("files", ())
    split = options.text("split", "blocks", choices=("blocks", "whole"))
    options.end()
    suffixes = ("",) if patterns else SUFFIXES
    return _documents(folder, patterns or ("*",), suffixes, split)


def _documents(
    folder: Path, patterns: tuple[str, ...], suffixes: tuple[str, ...], split: str
) -> Iterator[Text]:
    for name in source_files(folder, patterns, suffixes):
        text = read_text(folder / name)
        if split == "whole":
            if text.strip():
                yield Text(name, text)
            continue
        blocks = [block.strip("\n") for block in BLANK_LINES.split(text)]
        for number, block in enumerate((block for block in blocks if block.strip()), 1):
            yield Text(f"{name}#{number}", block)
