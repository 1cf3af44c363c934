"""Goes through what of a run is published, and looks for secrets and traces of the machine."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from instella.artifacts.identity import PACKAGE_FOLDER
from instella.artifacts.manifest import NAME
from instella.artifacts.places import ROOT, STATEMENTS, TABLE
from instella.canonical import parse_json
from instella.errors import BadUse, VerificationError
from instella.statements.folder import Finished, present
from instella.statements.secrets import (
    BINARY,
    Found,
    Word,
    in_bytes,
    in_file,
    secrets_of,
    traces_of,
    without_common,
)


def words_of(
    run: Finished,
    recipe_file: Path,
    environment: Mapping[str, str],
    names: tuple[str, str],
    key: bytes = b"",
) -> list[Word]:
    """What to look for in a run.

    Args:
        run: whose sources and imported checkpoints everybody has.
        recipe_file: its recipe.
        environment: variables of this user.
        names: of user and machine.
        key: the private key that signs, in PEM, where it is at hand.
    """
    folders = {
        "the home folder": Path(environment.get("HOME", "")),
        "the project": PACKAGE_FOLDER.parent,
        "the results": run.results.absolute(),
        "the store": run.store.root.absolute(),
    }
    words = [*secrets_of(environment, key), *traces_of(folders, *names)]
    return without_common(words, _public(run, recipe_file))


def _public(run: Finished, recipe_file: Path) -> Iterator[Path]:
    yield recipe_file
    yield from sorted(PACKAGE_FOLDER.rglob("*.py"))
    seen = set()
    for manifest in run.manifests.values():
        if manifest.kind == "source" or manifest.origin == "imported":
            seen |= {entry.sha256 for entry in manifest.files.values()}
    yield from (run.store.object_path(digest) for digest in sorted(seen))


def search(
    run: Finished, words: Iterable[Word], payloads: Mapping[str, bytes], others: Iterable[Path]
) -> list[Found]:
    """Words in what of a run is published: artifacts, manifests, summaries and statements.

    Args:
        run: the run; each of its bytes is read once.
        words: what to look for.
        payloads: statements by name, as they are signed; signatures hide them in base64.
        others: further files, and folders with all files below them.

    Raises:
        BadUse: one of the others does not exist, or is a pipe or device.
    """
    words = list(words)
    found = [Found(name, word) for name, data in payloads.items() for word in _in(data, words)]
    for name, path in (*_files(run), *_below(others)):
        is_binary = Path(name).suffix in BINARY
        found += [Found(name, word) for word in in_file(path, words, is_binary)]
    return found


def _in(data: bytes, words: list[Word]) -> list[Word]:
    return [word for word in words if in_bytes(data, word)]


def _files(run: Finished) -> Iterator[tuple[str, Path]]:
    seen = set()
    for stage, manifest in run.manifests.items():
        yield f"{stage}/{NAME}", run.results / stage / NAME
        for path, entry in manifest.files.items():
            if entry.sha256 not in seen:
                seen.add(entry.sha256)
                yield f"{stage}/{path}", run.store.object_path(entry.sha256)
    for name in (ROOT, TABLE):
        if (run.results / name).is_file():
            yield name, run.results / name


def _below(others: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    for other in others:
        if not other.exists():
            raise BadUse(f"{other}: there is no such file or folder to look through")
        if not other.is_dir() and not other.is_file():
            raise BadUse(f"{other}: neither a file nor a folder, so it cannot be looked through")
        files = sorted(other.rglob("*")) if other.is_dir() else [other]
        yield from ((str(path), path) for path in files if path.is_file())


def stated(folder: Path) -> dict[str, bytes]:
    """Statements in a folder by name, each with its payload behind it, unverified."""
    found = {}
    for name in present(folder):
        if not (folder / name).is_file():
            continue  # a dead link or a pipe, which holds nothing
        data = (folder / name).read_bytes()
        found[f"{STATEMENTS}/{name}"] = data + _payload(data)
    return found


def _payload(data: bytes) -> bytes:
    """Payload of an envelope; nothing of what is none."""
    try:
        value = parse_json(data, "statement")
        payload = value.get("dsseEnvelope", value)["payload"]
        return base64.b64decode(payload)
    except (VerificationError, AttributeError, KeyError, TypeError, binascii.Error):
        return b""
