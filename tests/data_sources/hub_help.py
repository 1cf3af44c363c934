"""What the tests of the hub share: locks of a served repository, and what lies in a cache."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from instella.canonical import sha256_bytes, sha256_file
from instella.data.sources.hub_cache import Cache
from instella.data.sources.hub_lock import Lock, LockedFile, lock_bytes

from .hub_server import Hub

SCRIPT = """
import json, sys
from pathlib import Path
from instella.data.sources import hub_trouble
from instella.data.sources.hub_download import fetch_repository
from instella.data.sources.hub_lock import read_lock
from instella.errors import KitError
lock, downloads, limit = sys.argv[1:]
hub_trouble.WAIT_SECONDS = (0.05, 0.05)
if int(limit):
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    fetch_repository(read_lock(Path(lock)), None, Path(downloads), print)
except KitError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def data_of(size: int, seed: int = 0) -> bytes:
    """Bytes without a repeating pattern that a shifted copy could hide in."""
    blocks = (sha256_bytes(b"%d %d" % (seed, n)).encode() for n in range(size // 64 + 1))
    return b"".join(blocks)[:size]


def lock_of(hub: Hub, **changes: Any) -> Lock:
    """A right lock of everything the hub serves."""
    files = {name: LockedFile(len(data), sha256_bytes(data)) for name, data in hub.files.items()}
    fields = {
        "repository": hub.name, "repository_type": hub.kind.removesuffix("s"),
        "commit": hub.commit, "patterns": ("*",), "licence": "odc-by", "gated": "no",
        "page": "https://example.org/page", "files": files, "schemas": {}, **changes,
    }  # fmt: skip
    return Lock(**fields)


def write_lock(path: Path, lock: Lock) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lock_bytes(lock))
    return path


def start_fetch(lock: Path, downloads: Path, limit: int = 0) -> subprocess.Popen[str]:
    """A process that fetches; no file of it may grow beyond ``limit`` bytes."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(lock), str(downloads), str(limit)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def objects_of(downloads: Path) -> set[str]:
    """Hashes of the cache's files; each one must be what its name says."""
    paths = [p for p in (Cache(downloads).root / "objects").rglob("*") if p.is_file()]
    for path in paths:
        assert sha256_file(path) == path.name
    return {path.name for path in paths}


def quarantine_of(downloads: Path) -> dict[str, bytes]:
    folder = Cache(downloads).root / "quarantine"
    return {p.name: p.read_bytes() for p in folder.iterdir()} if folder.exists() else {}


def files_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def written_json(path: Path) -> Any:
    return json.loads(path.read_bytes())
