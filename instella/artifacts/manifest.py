"""The manifest of an artifact: which files it has, who they come from, what made them.

Manifests are read as untrusted input. The file is canonical JSON with exactly these keys:
``format``, ``stage``, ``kind``, ``origin``, ``identity``, ``files``, ``ledgers``,
``content``.
"""

import re
import stat
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes, parse_json, sha256_bytes
from instella.errors import VerificationError

FORMAT = "instella.manifest/1"
NAME = "manifest.json"
ORIGINS = ("computed", "imported")
LEDGER_SUFFIX = ".ledger.jsonl"
MAX_BYTES = 64 << 20
MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255
MAX_DEPTH = 64

# also the form of a Merkle root
_SHA256 = re.compile(r"[0-9a-f]{64}")
_STAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_KEYS = {"format", "stage", "kind", "origin", "identity", "files", "ledgers", "content"}


@dataclass(frozen=True)
class Entry:
    """Bytes of one file: SHA-256 (64 hex digits) and size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True)
class Manifest:
    """What one stage made.

    Attributes:
        stage: name in the graph.
        kind: kind of the stage.
        origin: ``computed`` here, or ``imported`` from elsewhere.
        identity: plain JSON object, see ``identity.identity``.
        files: relative POSIX path to entry.
        ledgers: for each file whose name ends in ``.ledger.jsonl`` its path to the Merkle root
            over its lines, 64 hex digits (``instella.merkle``); follows from the bytes, so it
            is no part of the content.
    """

    stage: str
    kind: str
    origin: str
    identity: Mapping[str, Any]
    files: Mapping[str, Entry]
    ledgers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """SHA-256 of names, sizes, hashes and origin: what the next stage depends on."""
        return sha256_bytes(json_bytes({"files": self._plain_files(), "origin": self.origin}))

    def _plain_files(self) -> dict[str, dict[str, Any]]:
        return {
            path: {"sha256": entry.sha256, "size": entry.size} for path, entry in self.files.items()
        }

    def to_bytes(self) -> bytes:
        """The manifest file; one possible form."""
        return json_bytes(
            {
                "format": FORMAT,
                "stage": self.stage,
                "kind": self.kind,
                "origin": self.origin,
                "identity": dict(self.identity),
                "files": self._plain_files(),
                "ledgers": dict(self.ledgers),
                "content": self.content,
            }
        )


def read_manifest(path: Path) -> Manifest:
    """Read an untrusted manifest file.

    Raises:
        VerificationError: whatever is wrong with it, in one line.
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise VerificationError(f"{path}: not a plain file, so not a manifest")
    if state.st_size > MAX_BYTES:
        raise VerificationError(f"{path}: larger than {MAX_BYTES} bytes, so not a manifest")
    return parse_manifest(path.read_bytes(), str(path))


def parse_manifest(data: bytes, where: str) -> Manifest:
    """As ``read_manifest``, for bytes; ``where`` names them in errors."""
    value = parse_json(data, where)
    try:
        manifest = _from_value(value)
        canonical = manifest.to_bytes()
    except (ValueError, RecursionError) as error:
        raise VerificationError(f"{where}: not a manifest: {error}") from None
    if manifest.content != value["content"]:
        raise VerificationError(
            f"{where}: content: expected {manifest.content} from its files, "
            f"found {value['content']}"
        )
    if canonical != data:
        raise VerificationError(f"{where}: not in canonical form")
    return manifest


def _from_value(value: Any) -> Manifest:
    if not isinstance(value, dict) or set(value) != _KEYS:
        raise ValueError(f"needs exactly the keys {', '.join(sorted(_KEYS))}")
    if value["format"] != FORMAT:
        raise ValueError(f"format {value['format']!r} is not {FORMAT}")
    for key in ("stage", "kind"):
        if not isinstance(value[key], str) or not _STAGE_NAME.fullmatch(value[key]):
            raise ValueError(f"{key} {value[key]!r} is not a name")
    if value["origin"] not in ORIGINS:
        raise ValueError(f"origin {value['origin']!r} is not one of {', '.join(ORIGINS)}")
    if not isinstance(value["content"], str):
        raise ValueError("content is not text")
    files = _checked_files(value["files"])
    return Manifest(
        stage=value["stage"],
        kind=value["kind"],
        origin=value["origin"],
        identity=_checked_identity(value),
        files=files,
        ledgers=_checked_ledgers(value["ledgers"], files),
    )


def _checked_identity(value: dict[str, Any]) -> dict[str, Any]:
    identity = value["identity"]
    if not isinstance(identity, dict):
        raise ValueError("identity is not an object")
    if identity.get("stage") != value["stage"] or identity.get("kind") != value["kind"]:
        raise ValueError("identity belongs to another stage or kind")
    inputs = identity.get("inputs")
    if not isinstance(inputs, dict) or not all(
        isinstance(content, str) and _SHA256.fullmatch(content) for content in inputs.values()
    ):
        raise ValueError("identity's inputs are not roles with SHA-256 contents")
    _check_depth(identity, MAX_DEPTH)
    return identity


def _check_depth(value: Any, left: int) -> None:
    if not isinstance(value, (dict, list)):
        return
    if left == 0:
        raise ValueError(f"identity is nested more than {MAX_DEPTH} deep")
    for item in value.values() if isinstance(value, dict) else value:
        _check_depth(item, left - 1)


def _checked_files(files: Any) -> dict[str, Entry]:
    if not isinstance(files, dict) or not files:
        raise ValueError("files is not an object with at least one file")
    check_paths(files)
    entries: dict[str, Entry] = {}
    sizes: dict[str, int] = {}
    for path, entry in files.items():
        if not isinstance(entry, dict) or set(entry) != {"sha256", "size"}:
            raise ValueError(f"file {path!r} needs exactly sha256 and size")
        digest, size = entry["sha256"], entry["size"]
        if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise ValueError(f"file {path!r}: sha256 is not 64 lower-case hex digits")
        if type(size) is not int or size < 0:
            raise ValueError(f"file {path!r}: size is not a count of bytes")
        if sizes.setdefault(digest, size) != size:
            raise ValueError(f"file {path!r}: its sha256 stands with another size too")
        entries[path] = Entry(digest, size)
    return entries


def _checked_ledgers(ledgers: Any, files: Mapping[str, Entry]) -> dict[str, str]:
    if not isinstance(ledgers, dict):
        raise ValueError("ledgers is not an object")
    odd = sorted(set(ledgers) ^ set(ledger_paths(files)))
    if odd:
        raise ValueError(f"ledgers: {odd[0]!r} is missing, or is no file named *{LEDGER_SUFFIX}")
    for path, root in ledgers.items():
        if not isinstance(root, str) or not _SHA256.fullmatch(root):
            raise ValueError(f"ledger {path!r}: root is not 64 lower-case hex digits")
    return ledgers


def ledger_paths(files: Iterable[str]) -> list[str]:
    """Those of an artifact's files whose lines are leaves of a Merkle tree."""
    return [path for path in files if path.endswith(LEDGER_SUFFIX)]


def check_paths(paths: Any) -> None:
    """Refuse paths that are unsafe or mean different things on different systems.

    Raises:
        ValueError: the first bad path; or two that differ in case only, or one that is
            the folder of another.
    """
    seen: dict[str, str] = {}
    for path in paths:
        _check_path(path)
        other = seen.setdefault(path.casefold(), path)
        if other != path:
            raise ValueError(f"files {other!r} and {path!r} differ in case only")
    for path in seen:
        parts = path.split("/")
        for count in range(1, len(parts)):
            if "/".join(parts[:count]) in seen:
                raise ValueError(f"file {'/'.join(parts[:count])!r} is also a folder")


def _check_path(path: str) -> None:
    parts = path.split("/")
    if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"path {path!r} is not a plain relative path")
    if "\\" in path or not path.isprintable():
        raise ValueError(f"path {path!r} holds a backslash or an unprintable character")
    if unicodedata.normalize("NFC", path) != path:
        raise ValueError(f"path {path!r} is not in Unicode form NFC")
    if parts[0].casefold() == NAME:
        raise ValueError(f"path {path!r} is the manifest's own name")
    size = max(len(part.encode()) for part in parts)
    if size > MAX_NAME_BYTES or len(path.encode()) > MAX_PATH_BYTES:
        raise ValueError(f"path {path[:40]!r}... is too long")
