"""Asks the hub what a repository holds, and makes a lock of it."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from instella.canonical import write_bytes
from instella.data.member_names import matching
from instella.data.sources.hub_cache import Cache
from instella.data.sources.hub_client import Client, Repository
from instella.data.sources.hub_describe import Described, describe
from instella.data.sources.hub_download import CONNECTIONS
from instella.data.sources.hub_lock import (
    COMMIT,
    MAX_FILE_BYTES,
    SHA256,
    Lock,
    LockedFile,
    check_paths,
    schema_name,
)
from instella.data.sources.hub_trouble import NoAccess, Patience, Trouble, Unreadable
from instella.errors import VerificationError

# The hub gives a thousand entries a page: more pages than this is no honest list.
MAX_PAGES = 5000
# Larger files of a repository are never kept in git itself.
MAX_BLOB_BYTES = 1 << 26

Say = Callable[[str], None]


def make_lock(
    repository: str,
    repository_type: str,
    revision: str,
    patterns: Sequence[str],
    downloads: Path,
    say: Say,
    known: Lock | None = None,
) -> Lock:
    """Lock the matching files of a repository at what ``revision`` names today.

    SHA-256 and size of large files come from the hub's list. Small ones, which the hub
    knows by git's SHA-1 only, are fetched and hashed. Rows and columns come from the
    footers of Parquet files and, for row files fetched before, from their lines.

    Args:
        repository: ``owner/name``.
        repository_type: ``dataset`` or ``model``.
        revision: branch, tag or commit.
        patterns: exact paths or patterns of the files to lock.
        downloads: folder of fetched files.
        say: takes lines of progress.
        known: an older lock, whose facts about the same bytes are taken over.

    Raises:
        VerificationError: the hub cannot be reached, has no such revision or file, or its
            answer is malformed.
        KitError: the hub does not let this user in.
    """
    client = Client(threading.Event(), say)
    start = Repository(repository, repository_type, revision)
    info, _ = client.json(client.api_url(start, "revision", revision), start)
    where = f"{repository}: the hub's answer"
    commit = _commit(info, where)
    at_commit = Repository(repository, repository_type, commit)
    listed = _list(client, at_commit, where)
    wanted = matching(listed, patterns, f"{repository} at {commit}")
    maker = _Maker(client, at_commit, Cache(downloads), say, _facts(known))
    made = _all(maker, {path: listed[path] for path in wanted})
    files = {path: file for path, (file, _) in made.items()}
    schemas = {schema_name(columns): columns for _, columns in made.values() if columns is not None}
    return Lock(
        repository=repository,
        repository_type=repository_type,
        commit=commit,
        patterns=tuple(sorted(patterns)),
        licence=_licence(info),
        gated=_gated(info, where),
        page=at_commit.page,
        files=files,
        schemas=schemas,
    )


# Size, git SHA-1 and, for large files, SHA-256.
_Listed = tuple[int, str, str | None]
_Facts = dict[str, tuple[LockedFile, Mapping[str, str] | None]]


def _facts(known: Lock | None) -> _Facts:
    """What an older lock knows, by SHA-256 and by git's SHA-1."""
    facts: _Facts = {}
    if known is not None:
        for file in known.files.values():
            columns = known.schemas[file.schema] if file.schema is not None else None
            facts[file.sha256] = (file, columns)
            if file.blob is not None:
                facts[file.blob] = (file, columns)
    return facts


def _all(
    maker: "_Maker", listed: Mapping[str, _Listed]
) -> dict[str, tuple[LockedFile, Mapping[str, str] | None]]:
    """``maker.file`` for every file, several at a time."""
    pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="hub")
    try:
        jobs = {path: pool.submit(maker.file, path, *entry) for path, entry in listed.items()}
        return {path: job.result() for path, job in jobs.items()}
    finally:
        maker.client.stop.set()
        pool.shutdown(cancel_futures=True)


class _Maker:
    """Learns about one file after another."""

    def __init__(
        self, client: Client, repository: Repository, cache: Cache, say: Say, facts: _Facts
    ) -> None:
        self.client = client
        self.repository = repository
        self.cache = cache
        self.say = say
        self.facts = facts
        self.closed = False

    def file(
        self, path: str, size: int, blob: str, sha256: str | None
    ) -> tuple[LockedFile, Mapping[str, str] | None]:
        """A file's entry and its columns."""
        old, columns = self.facts.get(sha256 or blob, (None, None))
        if sha256 is None:
            sha256 = old.sha256 if old is not None else self._fetch_small(path, size, blob)
            git_blob: str | None = blob
        else:
            git_blob = None
        if old is not None and old.rows is not None and columns is not None:
            found = Described(old.rows, columns)
        else:
            found = self._describe(path, size, sha256)
        name = schema_name(found.columns) if found.columns is not None else None
        return LockedFile(size, sha256, git_blob, found.rows, name), found.columns

    def _describe(self, path: str, size: int, sha256: str) -> Described:
        if not self.cache.holds(sha256, size):
            return self._describe_from_afar(path, size)
        fetched = self.cache.object(sha256)
        # Readers choose by the end of the name, which an object does not have.
        with TemporaryDirectory() as temporary:
            named = Path(temporary) / path.rsplit("/", 1)[-1]
            named.symlink_to(fetched.absolute())
            return describe(path, size, named, self.say)

    def _describe_from_afar(self, path: str, size: int) -> Described:
        """What a footer says; nothing, after saying so once, when the hub does not let us in."""
        try:
            if not self.closed:
                read = partial(self._read, path)
                return describe(path, size, read, self.say)
        except NoAccess as error:
            self.closed = True
            self.say(f"rows and columns stay unknown: {error}")
        return Described(None, None)

    def _fetch_small(self, path: str, size: int, blob: str) -> str:
        """Fetch a file that git itself keeps, compare it with its git SHA-1, keep it."""
        if size > MAX_BLOB_BYTES:
            raise VerificationError(
                f"{self.repository.name}/{path}: {size} bytes without a SHA-256 from the hub"
            )
        data = self._read(path, 0, size) if size else b""
        found = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        if found != blob:
            raise VerificationError(
                f"{self.repository.name}/{path}: git SHA-1 is {found}, the hub's list says {blob}; "
                "run it again, or choose another HF_ENDPOINT"
            )
        sha256 = hashlib.sha256(data).hexdigest()
        if not self.cache.holds(sha256, size):
            with self.cache.locked_part(sha256):
                write_bytes(self.cache.part(sha256), data)
                self.cache.publish(sha256)
        return sha256

    def _read(self, path: str, start: int, end: int) -> bytes:
        """The bytes ``start`` to ``end`` of a file, ``end`` left out."""
        patience = Patience(self.client.stop, f"{self.repository.name}/{path}", self.say)
        while True:
            try:
                return self._read_once(path, start, end)
            except Trouble as trouble:
                patience.wait(trouble)

    def _read_once(self, path: str, start: int, end: int) -> bytes:
        data = bytearray()
        with self.client.body(self.repository, path, start, end) as body:
            if body.start != start:
                raise Unreadable(f"{self.repository.name}: the server gives no parts of files")
            for chunk in body.chunks:
                data += chunk
                if len(data) > end - start:
                    break
        if len(data) != end - start:
            raise Trouble(f"{len(data)} bytes instead of {end - start}")
        return bytes(data)


def _list(client: Client, repository: Repository, where: str) -> dict[str, _Listed]:
    """Path to size, git SHA-1 and, for large files, SHA-256; over all pages."""
    first = client.api_url(repository, "tree", repository.revision)
    query = "recursive=true&expand=false"
    found: dict[str, _Listed] = {}
    for _ in range(MAX_PAGES):
        page, link = client.json(f"{first}?{query}", repository)
        if not isinstance(page, list):
            raise VerificationError(f"{where}: need a list of files")
        for entry in page:
            if not isinstance(entry, dict) or entry.get("type") not in ("file", "directory"):
                raise VerificationError(f"{where}: an entry that is no file and no folder")
            if entry["type"] == "file":
                _add(entry, found, where)
        if link is None:
            check_paths(found, where)
            return found
        # Only the query is taken: a mirror may name another host, which must not be asked.
        query = urlsplit(link).query
    raise VerificationError(f"{where}: more than {MAX_PAGES} pages of files")


def _add(entry: dict[str, Any], found: dict[str, _Listed], where: str) -> None:
    path, size, blob = entry.get("path"), entry.get("size"), entry.get("oid")
    large = entry.get("lfs")
    sha256 = large.get("oid") if isinstance(large, dict) else None
    good = (
        isinstance(path, str)
        and path not in found
        and type(size) is int
        and 0 <= size <= MAX_FILE_BYTES
        and isinstance(blob, str)
        and COMMIT.fullmatch(blob) is not None
        and (large is None or (isinstance(sha256, str) and SHA256.fullmatch(sha256) is not None))
    )
    if not good:
        raise VerificationError(f"{where}: a malformed entry {str(path)[:200]!r}")
    assert isinstance(path, str) and isinstance(size, int) and isinstance(blob, str)
    found[path] = (size, blob, sha256)


def _commit(info: Any, where: str) -> str:
    commit = info.get("sha") if isinstance(info, dict) else None
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise VerificationError(f"{where}: no commit in it; check HF_ENDPOINT")
    return commit


def _licence(info: dict[str, Any]) -> str:
    """The card's licence; a list of them is joined, ``other`` gets its name."""
    card = info.get("cardData")
    card = card if isinstance(card, dict) else {}
    stated = card.get("license")
    names = stated if isinstance(stated, list) else [stated]
    if stated == "other" and isinstance(card.get("license_name"), str):
        names = [card["license_name"]]
    text = ", ".join(name for name in names if isinstance(name, str) and name.strip())
    return " ".join(text.split()) if text.isprintable() and text else "unknown"


def _gated(info: dict[str, Any], where: str) -> str:
    gated = info.get("gated", False)
    if gated is False:
        return "no"
    if gated in ("auto", "manual"):
        return str(gated)
    raise VerificationError(f"{where}: gated is {str(gated)[:80]!r}")
