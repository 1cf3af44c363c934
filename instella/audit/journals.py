"""Journals against manifests.

A journal is no part of an artifact and nobody signs it: times, hosts and CPUs in it are
what the run says of itself. Its lines have to agree with what the run claims, though: each
execution of an identity gave one content, and the content that stands is one that was made.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from instella.artifacts.check import Fault
from instella.artifacts.identity import identity_key
from instella.artifacts.journal import FOLDER
from instella.artifacts.lineage import dependants
from instella.artifacts.manifest import Manifest
from instella.canonical import json_bytes, parse_json
from instella.errors import VerificationError
from instella.recipe.graph import Stage

JOURNAL = "journal"
MAX_BYTES = 64 << 20
OUTCOMES = ("computed", "hit")
# Thirty years; what is added up and shown stays a number.
MAX_SECONDS, MAX_RANKS = 1e9, 1 << 20
_TEXT, _COUNT = (str,), (int,)
_FIELDS: dict[str, tuple[type, ...]] = {
    "started": _TEXT,
    "seconds": (int, float),
    "outcome": _TEXT,
    "identity": _TEXT,
    "content": _TEXT,
    "ranks": _COUNT,
}

Line = dict[str, Any]


def read_lines(path: Path) -> tuple[list[Line], list[str]]:
    """Sound lines of one journal, and what is wrong with the others, one text a line.

    A line that a crash cut short is neither.

    Raises:
        VerificationError: the file is no plain file or too large.
    """
    if path.is_symlink() or not path.is_file():
        raise VerificationError(f"{path}: not a plain file")
    if path.stat().st_size > MAX_BYTES:
        raise VerificationError(f"{path}: larger than {MAX_BYTES} bytes, so not a journal")
    lines, wrong = [], []
    for number, data in enumerate(path.read_bytes().split(b"\n"), 1):
        if not data or (data.startswith(b"{") and not data.endswith(b"}")):
            continue
        try:
            lines.append(_line(data, number))
        except VerificationError as error:
            wrong.append(str(error))
    return lines, wrong


def _line(data: bytes, number: int) -> Line:
    value = parse_json(data, f"line {number}")
    if not isinstance(value, dict):
        raise VerificationError(f"line {number}: not an object")
    for name, kinds in _FIELDS.items():
        if type(value.get(name)) not in kinds:
            raise VerificationError(f"line {number}: {name} is missing or of another type")
    if not (0 <= value["seconds"] <= MAX_SECONDS and 0 <= value["ranks"] <= MAX_RANKS):
        raise VerificationError(f"line {number}: seconds or ranks that nothing takes")
    try:
        is_own = value["outcome"] in OUTCOMES and json_bytes(value) == data + b"\n"
    except UnicodeEncodeError:
        is_own = False
    if not is_own:
        raise VerificationError(f"line {number}: not as the kit writes it")
    return value


def journal_faults(
    results: Path, graph: Mapping[str, Stage], manifests: Mapping[str, Manifest]
) -> Iterator[Fault]:
    """Faults of the journals of all stages that have a sound manifest."""
    for name, manifest in manifests.items():
        file = f"{FOLDER}/{name}.jsonl"
        try:
            lines, wrong = read_lines(results / FOLDER / f"{name}.jsonl")
        except VerificationError:
            yield _fault(graph, name, file, "a line for each execution", "nothing to read")
            continue
        for text in wrong:
            yield _fault(graph, name, file, "sound lines", text)
        key = identity_key(manifest.identity)
        contents = {line["content"] for line in lines if line["identity"] == key}
        if contents != {manifest.content}:
            found = " and ".join(sorted(contents)) or "no line of this identity"
            yield _fault(graph, name, file, f"content {manifest.content}", found)


def _fault(graph: Mapping[str, Stage], name: str, file: str, expected: str, found: str) -> Fault:
    return Fault(name, JOURNAL, file, expected, found, dependants(graph, name))


def computed_seconds(results: Path, manifests: Mapping[str, Manifest]) -> dict[str, float]:
    """Stage to the seconds that its newest computation took, as the journal has it."""
    found = {}
    for name in manifests:
        try:
            lines, _ = read_lines(results / FOLDER / f"{name}.jsonl")
        except VerificationError:
            continue
        spent = [line["seconds"] for line in lines if line["outcome"] == "computed"]
        found[name] = float(spent[-1]) if spent else 0.0
    return found
