"""Writes an import into a recipe file, or takes it out; every other line stays as it is."""

import os
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

from instella.canonical import write_bytes
from instella.errors import BadUse
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Import

_HEAD = re.compile(r"imports:\s*(#.*)?")
_INSIDE = re.compile(r"\s+\S.*|\s*(#.*)?")
_INDENT = re.compile(r"(\s+)[^\s#]")


def check_entry(file: Path, stage: str, item: Import | None) -> None:
    """Refuse an import that the recipe could not have; writes nothing that stays.

    Raises:
        BadUse: as ``write_entry``.
    """
    _prepare(file, stage, item).unlink()


def write_entry(file: Path, stage: str, item: Import | None) -> None:
    """Set the import of a stage, or remove it with None.

    Args:
        file: the recipe; replaced in one step, its comments kept.
        stage: name of a checkpoint.
        item: what to write.

    Raises:
        BadUse: the recipe would be refused, or its imports stand in a form that this does
            not edit.
    """
    os.replace(_prepare(file, stage, item), os.path.realpath(file))


def _prepare(file: Path, stage: str, item: Import | None) -> Path:
    """The changed recipe in a file beside it, read back and compared."""
    old = read_recipe(file)
    imports = {name: other for name, other in (old.imports or {}).items() if name != stage}
    if item is not None:
        imports[stage] = item
    text = file.read_bytes().decode("utf-8")
    real = Path(os.path.realpath(file))
    draft = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        shutil.copy(real, draft)
        write_bytes(draft, _changed(text, stage, item, bool(imports)).encode("utf-8"))
        new = read_recipe(draft)
        if new != replace(old, imports=imports or None):
            raise BadUse(_by_hand(file, stage, item))
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, BadUse):
            raise BadUse(str(error).replace(str(draft), str(file))) from None
        raise
    return draft


def _entry(stage: str, item: Import, indent: str = "  ") -> str:
    known = {name: value for name, value in asdict(item).items() if value is not None}
    # In quotes, since digits with one e among them would be a number.
    values = ", ".join(f'{name}: "{value}"' for name, value in known.items())
    return f"{indent}{stage}: {{{values}}}"


def _by_hand(file: Path, stage: str, item: Import | None) -> str:
    if item is None:
        return f"{file}: cannot edit its imports; take {stage} out of them by hand"
    return f"{file}: cannot edit its imports; write below them by hand:{_entry(stage, item)}"


def _changed(text: str, stage: str, item: Import | None, any_left: bool) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(newline)
    head = next((n for n, line in enumerate(lines) if _HEAD.fullmatch(line)), None)
    if head is None:
        new = [] if item is None else ["imports:", _entry(stage, item), ""]
        return text + ("" if text.endswith(newline) else newline) + newline.join(new)
    end = head + 1
    while end < len(lines) and _INSIDE.fullmatch(lines[end]):
        end += 1
    block = lines[head + 1 : end]
    indent = next((found[1] for line in block if (found := _INDENT.match(line))), "  ")
    own = re.compile(rf"\s+{re.escape(stage)}:\s.*")
    kept = [line for line in block if not own.fullmatch(line)]
    new = [] if item is None else [_entry(stage, item, indent)]
    first = [lines[head]] if any_left else []
    return newline.join([*lines[:head], *first, *new, *kept, *lines[end:]])
