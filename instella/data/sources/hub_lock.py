"""A hub lock: which bytes a repository held at one commit. Read from untrusted files.

Canonical JSON with the keys of ``Lock`` (``repository_type`` is called ``type``); ``files``
maps a path to size, SHA-256 and, where known, git blob SHA-1, rows and schema; ``schemas``
maps the name of a schema to ``{column: type}``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unicodedata import category

from instella.canonical import json_bytes, read_json, sha256_bytes
from instella.data.member_names import check_name
from instella.errors import VerificationError

FORMAT = 1
TYPES = ("dataset", "model")
GATES = ("no", "auto", "manual")
MAX_FILE_BYTES = 1 << 50
MAX_LOCK_BYTES = 1 << 28
# Of one file or folder, on every common file system.
MAX_NAME_BYTES = 255
COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
PAGE = re.compile(r"https://[A-Za-z0-9./_-]{1,400}")
_KEYS = (
    "format", "repository", "type", "commit", "patterns", "licence", "gated", "page", "files",
    "schemas",
)  # fmt: skip


@dataclass(frozen=True)
class LockedFile:
    """One file.

    Attributes:
        size: bytes.
        sha256: of the bytes, 64 hex digits.
        blob: the hub's git blob SHA-1 of a file that is kept in git itself, else None.
        rows: number of rows, None where unknown.
        schema: name of its columns and types in ``Lock.schemas``, None where unknown.
    """

    size: int
    sha256: str
    blob: str | None = None
    rows: int | None = None
    schema: str | None = None


@dataclass(frozen=True)
class Lock:
    """What a repository held at one commit.

    Attributes:
        repository: ``owner/name``.
        repository_type: ``dataset`` or ``model``.
        commit: 40 hex digits.
        patterns: which of the repository's files are listed: all that match one of them.
        licence: as the repository's card names it, ``unknown`` if it does not.
        gated: ``no``, or how access is given once the terms are accepted: ``auto``, ``manual``.
        page: where the card stands and terms are accepted.
        files: by path.
        schemas: columns and types by name; the name is derived from them.
    """

    repository: str
    repository_type: str
    commit: str
    patterns: tuple[str, ...]
    licence: str
    gated: str
    page: str
    files: Mapping[str, LockedFile]
    schemas: Mapping[str, Mapping[str, str]]


def schema_name(columns: Mapping[str, str]) -> str:
    """The name of a schema: 12 hex digits derived from its columns and types."""
    return sha256_bytes(json_bytes(dict(columns)))[:12]


def lock_bytes(lock: Lock) -> bytes:
    """The canonical file of a lock."""
    files = {
        path: {name: value for name, value in vars(file).items() if value is not None}
        for path, file in lock.files.items()
    }
    return json_bytes(
        {
            "format": FORMAT,
            "repository": lock.repository,
            "type": lock.repository_type,
            "commit": lock.commit,
            "patterns": list(lock.patterns),
            "licence": lock.licence,
            "gated": lock.gated,
            "page": lock.page,
            "files": files,
            "schemas": {name: dict(columns) for name, columns in lock.schemas.items()},
        }
    )


def read_lock(path: Path) -> Lock:
    """Read and check a lock file.

    Raises:
        VerificationError: too large, not strict JSON, a key too many or too few, a value of
            another form, or a path that could leave its folder.
    """
    if path.stat().st_size > MAX_LOCK_BYTES:
        raise VerificationError(f"{path}: larger than {MAX_LOCK_BYTES} bytes, no lock file")
    return parse_lock(read_json(path), str(path))


def parse_lock(value: Any, where: str) -> Lock:
    """As ``read_lock``, for a parsed JSON value; ``where`` names it in errors."""
    fields = _object(value, where, required=_KEYS)
    if fields["format"] != FORMAT or isinstance(fields["format"], bool):
        raise _fault(where, "format", f"is not {FORMAT}; make the lock again")
    for name, form in (("repository", REPOSITORY), ("commit", COMMIT), ("page", PAGE)):
        _matches(fields[name], form, where, name)
    for name, choices in (("type", TYPES), ("gated", GATES)):
        if not isinstance(fields[name], str) or fields[name] not in choices:
            raise _fault(where, name, f"must be one of {', '.join(choices)}")
    licence = fields["licence"]
    if not _is_text(licence):
        raise _fault(where, "licence", "must be one line of text")
    patterns = fields["patterns"]
    if not isinstance(patterns, list) or not patterns or not all(map(_is_text, patterns)):
        raise _fault(where, "patterns", "must be a list of patterns")
    schemas = _schemas(fields["schemas"], where)
    return Lock(
        repository=fields["repository"],
        repository_type=fields["type"],
        commit=fields["commit"],
        patterns=tuple(patterns),
        licence=licence,
        gated=fields["gated"],
        page=fields["page"],
        files=_files(fields["files"], schemas, where),
        schemas=schemas,
    )


def check_paths(paths: Mapping[str, Any], where: str) -> None:
    """VerificationError for a path that leaves its folder or lies below another file."""
    for path in paths:
        parts = check_name(path, where).split("/")
        if any(category(letter) == "Cc" for letter in path):
            raise VerificationError(f"{where}: {path!r} holds a control character")
        if any(len(part.encode("utf-8")) > MAX_NAME_BYTES for part in parts):
            raise VerificationError(f"{where}: {path[:80]!r}... is too long for a file system")
        for count in range(1, len(parts)):
            if "/".join(parts[:count]) in paths:
                raise VerificationError(f"{where}: {path!r} lies below a file of that name")


def _files(value: Any, schemas: Mapping[str, Any], where: str) -> Mapping[str, LockedFile]:
    entries = _object(value, f"{where}: files")
    if not entries:
        raise _fault(where, "files", "is empty")
    check_paths(entries, where)
    return MappingProxyType(
        {path: _file(entry, schemas, f"{where}: {path!r}") for path, entry in entries.items()}
    )


def _file(value: Any, schemas: Mapping[str, Any], where: str) -> LockedFile:
    entry = _object(value, where, required=("size", "sha256"), optional=("blob", "rows", "schema"))
    _matches(entry["sha256"], SHA256, where, "sha256")
    for name in ("size", "rows"):
        number = entry.get(name, 0)
        if type(number) is not int or not 0 <= number <= MAX_FILE_BYTES:
            raise _fault(where, name, "must be a whole number, not negative")
    if "blob" in entry:
        _matches(entry["blob"], COMMIT, where, "blob")
    if "schema" in entry and (
        not isinstance(entry["schema"], str) or entry["schema"] not in schemas
    ):
        raise _fault(where, "schema", "names none of the lock's schemas")
    return LockedFile(**entry)


def _schemas(value: Any, where: str) -> Mapping[str, Mapping[str, str]]:
    schemas = _object(value, f"{where}: schemas")
    for name, columns in schemas.items():
        _object(columns, f"{where}: schema {name!r}")
        if not all(isinstance(kind, str) for kind in columns.values()):
            raise _fault(where, "schemas", "a column's type must be text")
        if not all(map(_is_unicode, columns)) or name != schema_name(columns):
            raise _fault(where, "schemas", f"{name!r} is not the name of its columns")
    return MappingProxyType({name: MappingProxyType(item) for name, item in schemas.items()})


def _object(
    value: Any, where: str, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    """``value`` if it is an object; with ``required``, one with these keys and no others."""
    if not isinstance(value, dict):
        raise VerificationError(f"{where}: need an object")
    if required:
        for name in required:
            if name not in value:
                raise _fault(where, name, "is missing")
        for name in value:
            if name not in (*required, *optional):
                raise VerificationError(f"{where}: key {name!r} does not belong there")
    return value


def _is_unicode(text: str) -> bool:
    return not any(category(letter) == "Cs" for letter in text)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != "" and value.isprintable()


def _matches(value: Any, form: re.Pattern[str], where: str, name: str) -> None:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise _fault(where, name, "has not its form")


def _fault(where: str, name: str, what: str) -> VerificationError:
    return VerificationError(f"{where}: {name}: {what}; run `instella data lock` to make it again")
