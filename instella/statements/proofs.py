"""Proof of one file of a run, or of one line of it, against the signed statement of the run.

A proof holds the run's statement, the file's leaf with its path to the statement's tree, and for a
line the line with its path to the root of the file's lines. With the public key it is
checked by itself: no other file of the run is needed, and no network.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.artifacts.manifest import Manifest
from instella.artifacts.store import Store
from instella.canonical import json_bytes, parse_json
from instella.errors import BadUse, VerificationError
from instella.inclusion import audit_path, root_with
from instella.merkle import DIGEST_BYTES
from instella.statements.envelope import MAX_BYTES, STATEMENT_TYPE, open_envelope
from instella.statements.keys import PublicKey
from instella.statements.predicates import RUN, SCORES
from instella.statements.tree import Leaf, leaf_bytes, leaves, lines_of

FORMAT = "instella.proof/1"
MAX_PATH = 64
_KEYS = {"format", "statement", "file", "path", "line"}


@dataclass(frozen=True)
class Proved:
    """What a proof proves.

    Attributes:
        recipe, root: of the run.
        stage, path, sha256, size: of the file.
        line: the line with its line feed, or None.
        index: its number from 0; 0 without a line.
    """

    recipe: str
    root: str
    stage: str
    path: str
    sha256: str
    size: int
    line: str | None
    index: int


def prove(
    statement: Any,
    manifests: Mapping[str, Manifest],
    store: Store,
    place: tuple[str, str],
    index: int | None = None,
) -> bytes:
    """A proof, as the bytes of its file.

    Args:
        statement: the envelope of the run's statement, which was verified against these manifests.
        manifests, store: of the run.
        place: stage and path of the file.
        index: number of the line, from 0; None for the file alone.

    Raises:
        BadUse: there is no such file or line, or lines of this file cannot be proved.
    """
    found = leaves(manifests, store)
    number = next((i for i, leaf in enumerate(found) if (leaf.stage, leaf.path) == place), None)
    if number is None:
        known = ", ".join(leaf.path for leaf in found if leaf.stage == place[0])
        raise BadUse(f"{place[0]}: has no file {place[1]}; it has {known or 'none'}")
    leaf = found[number]
    return json_bytes(
        {
            "format": FORMAT,
            "statement": statement,
            "file": leaf.plain(),
            "path": _place(leaf_bytes(found), number),
            "line": None if index is None else _line(leaf, store, index),
        }
    )


def _line(leaf: Leaf, store: Store, index: int) -> dict[str, Any]:
    if leaf.lines is None:
        raise BadUse(f"{leaf.stage}/{leaf.path}: its lines cannot be proved, only the whole file")
    lines = list(lines_of(store, leaf.path, leaf.entry))
    if not 0 <= index < len(lines):
        raise BadUse(f"{leaf.stage}/{leaf.path}: has lines 1 to {len(lines)}, not {index + 1}")
    return {"text": lines[index].decode("utf-8"), **_place(lines, index)}


def _place(hashed: list[bytes], index: int) -> dict[str, Any]:
    return {"index": index, "siblings": [item.hex() for item in audit_path(hashed, index)]}


def score_index(store: Store, manifest: Manifest, held_out: str, metric: str) -> int:
    """Number of the line of ``scores.json`` that holds a figure.

    Raises:
        BadUse: it holds no such figure.
    """
    if SCORES not in manifest.files:
        raise BadUse(f"{manifest.stage}: has no {SCORES}; name a stage that evaluates")
    known = []
    for index, line in enumerate(lines_of(store, SCORES, manifest.files[SCORES])):
        value = parse_json(line, SCORES)
        if (value["set"], value["metric"]) == (held_out, metric):
            return index
        known.append(f"{value['set']}/{value['metric']}")
    raise BadUse(f"{manifest.stage}: has no score {held_out}/{metric}; it has {', '.join(known)}")


def check(path: Path, key: PublicKey) -> Proved:
    """Check a proof, an untrusted file.

    Raises:
        VerificationError: it proves nothing, and why.
    """
    if not os.path.lexists(path):
        raise VerificationError(f"{path}: there is no such file; give the proof's own path")
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise VerificationError(f"{path}: no plain file of at most {MAX_BYTES} bytes, so no proof")
    data, where = path.read_bytes(), str(path)
    value = parse_json(data, where)
    if not isinstance(value, dict) or set(value) != _KEYS or value["format"] != FORMAT:
        raise VerificationError(f"{where}: not a proof of the form {FORMAT}")
    stated = _run_predicate(open_envelope(value["statement"], where, key), where)
    try:
        if json_bytes(value) != data:
            raise ValueError("not in canonical form")
        return _checked(value, stated, where)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise VerificationError(f"{where}: not a proof: {type(error).__name__}: {error}") from None


def _run_predicate(payload: bytes, where: str) -> dict[str, Any]:
    """Predicate of a run's statement, whose signature is known to be good."""
    value = parse_json(payload, where)
    if (
        not isinstance(value, dict)
        or value.get("_type") != STATEMENT_TYPE
        or value.get("predicateType") != RUN
    ):
        raise VerificationError(f"{where}: signed, but no statement of the type {RUN}")
    return dict(value["predicate"])


def _checked(value: dict[str, Any], stated: dict[str, Any], where: str) -> Proved:
    file, line = value["file"], value["line"]
    root = _root(json_bytes(file), value["path"], stated["files"]["count"])
    if root != stated["files"]["root"]:
        raise VerificationError(f"{where}: the file does not lead to the signed root")
    text, index = None, 0
    if line is not None:
        if set(line) != {"text", "index", "siblings"} or file["lines"] is None:
            raise ValueError("line has another form, or the file has none")
        text, index = line["text"], line["index"]
        place = {"index": index, "siblings": line["siblings"]}
        if _root(text.encode("utf-8"), place, file["lines"]["count"]) != file["lines"]["root"]:
            raise VerificationError(f"{where}: the line does not lead to the root of its file")
    return Proved(
        stated["recipe"]["name"], stated["root"], file["stage"], file["path"], file["sha256"],
        file["size"], text, index,
    )  # fmt: skip


def _root(leaf: bytes, place: dict[str, Any], size: int) -> str:
    if set(place) != {"index", "siblings"} or type(place["index"]) is not int:
        raise ValueError("a path needs exactly index and siblings")
    # A tree deeper than the longest path has no such leaf.
    if not 0 <= place["index"] < 1 << MAX_PATH:
        raise ValueError("the index is of no leaf")
    siblings = [bytes.fromhex(text) for text in place["siblings"]]
    # Hex has several texts for the same bytes; only one is taken.
    if any(item.hex() != text for item, text in zip(siblings, place["siblings"], strict=True)):
        raise ValueError("siblings are not lower-case hex")
    if len(siblings) > MAX_PATH or any(len(item) != DIGEST_BYTES for item in siblings):
        raise ValueError("siblings are not hashes of 32 bytes")
    return root_with(leaf, place["index"], size, siblings).hex()
