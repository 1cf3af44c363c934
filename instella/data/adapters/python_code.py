"""Adapter ``python_code``: Python files become texts.

Options: ``files`` (patterns; default every .py file), ``max_characters`` (a longer file
is cut behind the last whole line that fits).
"""

from collections.abc import Iterator
from pathlib import Path

from instella.data.adapters.files import read_text, source_files
from instella.data.adapters.options import Options
from instella.data.documents import Text
from instella.recipe.settings import Part


def read(part: Part, folder: Path) -> Iterator[Text]:
    """One ``Text`` a file, key ``path``; empty files are left out."""
    options = Options(part)
    patterns = options.texts("files", ("*",))
    limit = options.optional_whole("max_characters", at_least=1)
    options.end()
    return _documents(folder, patterns, limit)


def _documents(folder: Path, patterns: tuple[str, ...], limit: int | None) -> Iterator[Text]:
    for name in source_files(folder, patterns, (".py",)):
        text = cut(read_text(folder / name), limit)
        if text.strip():
            yield Text(name, text)


def cut(text: str, limit: int | None) -> str:
    """The longest run of whole lines from the start with at most ``limit`` characters."""
    if limit is None or len(text) <= limit:
        return text
    return text[: text.rfind("\n", 0, limit) + 1]
