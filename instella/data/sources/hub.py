"""Source kind ``hub``: files of a Hugging Face repository at one commit.

A lock file lists every file with its SHA-256 and size. The hub's client does not notice
a body of the right length with other content, so each file is hashed here before use.
Files already fetched and verified need no network.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from instella.canonical import read_json, sha256_file
from instella.data.member_names import check_name, matching
from instella.data.sources.checks import (
    check_hash,
    check_hex,
    copy_file,
    locked,
    quarantine,
    require,
)
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Source

# The client retries HEAD and API requests on 503, but not the GET of a file.
RETRY_AFTER_SECONDS = (1.0, 2.0, 4.0, 8.0)
RETRY_STATUS = (429, 500, 502, 503, 504)


def fetch(
    source: Source, folder: Path, downloads: Path, recipe_folder: Path, say: Callable[[str], None]
) -> None:
    """Download the wanted files, verify each against the lock, copy them to ``folder``.

    Raises:
        BadUse: no revision or no lock is pinned.
        VerificationError: a file that cannot be had, or whose bytes differ from the lock.
    """
    require(source, "repository")
    if source.revision is None:
        raise BadUse(
            f"{source.repository}: no revision is pinned; put the commit (40 hex digits, "
            "from the repository's history) into revision, and a lock file into lock"
        )
    check_hex(source.revision, 40, f"{source.repository}: revision")
    lock = _read_lock(source, recipe_folder)
    names = matching(lock, source.files or ("*",), f"{source.repository} (lock {source.lock})")
    owner_name = check_name(str(source.repository), "repository").replace("/", "--")
    cache = downloads / "hub" / f"{source.repository_type}s--{owner_name}" / source.revision
    with locked(cache.with_name(f"{source.revision}.lock")):
        for name in names:
            path = cache / name
            if not _is_verified(path, lock[name], say):
                say(f"fetching {source.repository}/{name}")
                _download(source, name, cache)
                _verify(path, lock[name])
            copy_file(path, folder / name)


def _read_lock(source: Source, recipe_folder: Path) -> dict[str, dict[str, Any]]:
    """``{file: {"sha256": 64 hex digits, "size": bytes}}``, checked."""
    if source.lock is None:
        raise BadUse(
            f"{source.repository}: no lock file is named; write one as JSON "
            '{file: {"sha256": ..., "size": ...}} and name it in lock'
        )
    path = recipe_folder / source.lock
    if not path.is_file():
        raise BadUse(f"{path}: no such lock file; correct lock of {source.repository}")
    lock = read_json(path)
    if not isinstance(lock, dict) or not lock:
        raise VerificationError(f"{path}: need an object with one entry a file")
    for name, entry in lock.items():
        check_name(name, str(path))
        if not isinstance(entry, dict) or set(entry) != {"sha256", "size"}:
            raise VerificationError(f"{path}: {name}: need sha256 and size, nothing else")
        if type(entry["size"]) is not int or not isinstance(entry["sha256"], str):
            raise VerificationError(f"{path}: {name}: size must be a number, sha256 text")
        check_hex(entry["sha256"], 64, f"{path}: {name}: sha256")
    return lock


def _is_verified(path: Path, entry: dict[str, Any], say: Callable[[str], None]) -> bool:
    if not path.exists():
        return False
    if path.stat().st_size == entry["size"] and sha256_file(path) == entry["sha256"]:
        return True
    say(
        f"{path.name}: not the pinned bytes, fetching again; kept as {quarantine(path, path.parent)}"
    )
    return False


def _verify(path: Path, entry: dict[str, Any]) -> None:
    size = path.stat().st_size
    if size != entry["size"]:
        bad = quarantine(path, path.parent)
        raise VerificationError(
            f"{path.name}: {size} bytes, the lock expects {entry['size']}; kept as {bad}"
        )
    check_hash(path, entry["sha256"], path.parent)


def _download(source: Source, name: str, cache: Path) -> None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, XetDownloadError
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    for wait in (*RETRY_AFTER_SECONDS, None):
        try:
            hf_hub_download(
                repo_id=str(source.repository),
                filename=name,
                repo_type=source.repository_type,
                revision=source.revision,
                local_dir=cache,
            )
            return
        except HfHubHTTPError as error:
            if wait is None or error.response.status_code not in RETRY_STATUS:
                raise _failed(source, name, error) from None
        except (HTTPError, OSError, XetDownloadError) as error:
            raise _failed(source, name, error) from None
        time.sleep(wait)


def _failed(source: Source, name: str, error: Exception) -> VerificationError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0] if lines else type(error).__name__
    endpoint = os.environ.get("HF_ENDPOINT", "the default endpoint")
    return VerificationError(
        f"cannot fetch {source.repository}/{name}: {reason} ({endpoint}); check the network, "
        "HF_ENDPOINT, HF_HUB_OFFLINE and, for a gated repository, HF_TOKEN"
    )
