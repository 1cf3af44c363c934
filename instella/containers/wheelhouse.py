"""The Python packages of an image for CPUs: the files of a lock, installed and compiled.

pip checks every hash of the lock, once when it fetches and once when it installs, without a
network. The image's own Python compiles, in a fixed order of files, since the bytes it
writes depend on what the process compiled before.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from instella.artifacts.identity import lock_file
from instella.canonical import sha256_file
from instella.containers.images import CPU, require_lock
from instella.errors import KitError, VerificationError
from instella.wheels import locked_hashes

# Packages that come as source only; ./kit has the same list, which a test compares.
SOURCE_ONLY = "cellpylib,connection-pool,zss"
# A lock adds its own in lines that pip reads too.
_NO_BINARY = re.compile(r"^--no-binary (\S+)$", re.MULTILINE)
SITE = "usr/local/lib/python3.11/dist-packages"
EXTRA_SITE = "opt/verl"
# What a wheel may bring beside packages: commands, headers and manuals, which no stage uses.
_NOT_IMPORTED = ("bin", "etc", "include", "man", "share")
_PARTS = 8
_BUILDERS = ("setuptools", "wheel")
_PIP = (sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "--quiet")


@dataclass(frozen=True)
class Site:
    """Python packages that share a folder of an image.

    Attributes:
        folder: in the image, without the first slash.
        lock: name of the lock that has them.
        packages: name to version and SHA-256s.
        source_only: names of those without a wheel, separated by commas.
    """

    folder: str
    lock: str
    packages: Mapping[str, tuple[str, set[str]]]
    source_only: str


def sites(name: str) -> tuple[Site, ...]:
    """The Python packages of an image for CPUs, from the bottom layer up.

    ``cpu`` has those of ``run.lock``, and ``cpu-verl`` above them what differs in its own lock.

    Raises:
        BadUse: the image's own lock is missing.
        VerificationError: a package without a hash.
    """
    run = locked_hashes(lock_file())
    found = [Site(SITE, lock_file().name, run, SOURCE_ONLY)]
    if name != CPU:
        lock = require_lock(name)
        own = {
            package: (version, hashes)
            for package, (version, hashes) in locked_hashes(lock).items()
            if package not in run or run[package][0] != version or not run[package][1] & hashes
        }
        added = _NO_BINARY.findall(lock.read_text(encoding="utf-8"))
        found.append(Site(EXTRA_SITE, lock.name, own, ",".join([SOURCE_ONLY, *added])))
    for site in found:
        for package, (_, hashes) in site.packages.items():
            if not hashes:
                raise VerificationError(f"{site.lock}: {package} has no hash")
    return tuple(found)


def _forms(site: Site) -> list[str]:
    """Wheels, but for the packages that have none; built by the tools that are installed."""
    source = f"--no-binary={site.source_only}"
    return ["--only-binary=:all:", source, "--no-build-isolation", "--use-pep517"]


def fetch(site: Site, folder: Path) -> None:
    """Have a file for every package in ``folder``, by pip's own settings.

    Raises:
        KitError: pip cannot get one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    there = {sha256_file(path) for path in folder.iterdir() if path.is_file()}
    if all(hashes & there for _, hashes in site.packages.values()):
        return
    words = ["download", "--no-deps", "--require-hashes", *_forms(site), "--dest", str(folder)]
    # A constraints file is about what gets installed, and nothing is.
    _pip([*words, "-r", "/dev/stdin"], {**os.environ, "PIP_CONSTRAINT": os.devnull}, site)


def install(site: Site, wheels: Path, target: Path, epoch: int) -> None:
    """Install packages into the folder ``target``, from fetched files only.

    Raises:
        VerificationError: this Python has other build tools than the lock.
        KitError: pip failed.
    """
    _require_builders(lock_file())
    environment = {
        "HOME": str(target.parent),
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "PIP_CONFIG_FILE": os.devnull,
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": str(epoch),
        "TMPDIR": str(target.parent),
    }
    words = [
        "install",
        "--no-deps",
        "--require-hashes",
        *_forms(site),
        "--no-compile",
        "--no-index",
    ]
    places = ["--no-cache-dir", "--find-links", str(wheels), "--target", str(target)]
    _pip([*words, *places, "-r", "/dev/stdin"], environment, site)
    for name in _NOT_IMPORTED:
        if (target / name).exists():
            shutil.rmtree(target / name)
    for record in sorted(target.glob("*.dist-info/RECORD")):
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        # Commands: their first line names the Python that ran pip.
        record.write_text("".join(line for line in lines if not line.startswith("../")), "utf-8")


def _require_builders(lock: Path) -> None:
    """Packages that come as source are built by the versions of the lock."""
    from importlib import metadata

    locked = locked_hashes(lock)
    for name in _BUILDERS:
        found = metadata.version(name)
        if found != locked[name][0]:
            raise VerificationError(
                f"{name}: expected version {locked[name][0]} of {lock.name} in this Python, found "
                f"{found}; build the image from the kit's own .venv (./kit setup)"
            )


def _pip(words: list[str], environment: Mapping[str, str], site: Site) -> None:
    lines = [
        f"{package}=={version} {' '.join(f'--hash=sha256:{item}' for item in sorted(hashes))}\n"
        for package, (version, hashes) in sorted(site.packages.items())
    ]
    done = subprocess.run(
        [*_PIP, *words],
        env=environment, input="".join(lines), capture_output=True, text=True, check=False,
        umask=0o022,
    )  # fmt: skip
    if done.returncode:
        told = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise KitError(f"pip {words[0]}: {told[-1] if told else done.stderr[-300:]}")


def compile_packages(root: Path, site: Path, shown: str, workers: int) -> None:
    """Compile everything below ``site`` with the Python of the root file system ``root``.

    Its loader is called by name, so that nothing of the host's libraries takes part and no
    right to change the root is needed.

    Args:
        root: of the image.
        site: folder of the packages.
        shown: where that folder will lie in the image.
        workers: processes at a time.

    Raises:
        KitError: that Python does not run.
    """
    files = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.py"))
    libraries = root / "usr/lib/x86_64-linux-gnu"
    python = [
        str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries),
        str(root / "usr/bin/python3.11"), "-sSWignore",
    ]  # fmt: skip
    environment = {
        "PYTHONHOME": str(root / "usr"),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
    }
    # Hash-based: the times of files in the image say nothing.
    words = ["-m", "compileall", "-qq", "--invalidation-mode", "unchecked-hash", "-p", shown]

    def compile_part(part: int) -> None:
        chosen = "\n".join(files[part::_PARTS])
        done = subprocess.run(
            [*python, *words, "-i", "-"],
            cwd=site, env=environment, input=chosen, text=True, capture_output=True, check=False,
        )  # fmt: skip
        # 1: a file is for another Python, as some packages ship
        if done.returncode not in (0, 1):
            raise KitError(f"the image's Python does not compile: {done.stderr[-300:]}")

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(compile_part, range(_PARTS)))
    if not any(site.rglob("__init__.cpython-311.pyc")):
        raise KitError("the image's Python compiled nothing; see instella/containers/wheelhouse.py")
