"""The Python packages of an image: the wheels of ``run.lock``, installed and compiled.

pip checks every hash of the lock, once when it fetches and once when it installs, without a
network. The image's own Python compiles, in a fixed order of files, since the bytes it
writes depend on what the process compiled before.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from instella.artifacts.identity import lock_file
from instella.canonical import sha256_file
from instella.errors import KitError, VerificationError
from instella.wheels import locked_hashes

# Packages that come as source only, by lock; those of run.lock stand in ./kit too, a test compares.
SOURCE_ONLY = {
    "run.lock": "cellpylib,connection-pool,zss",
    "requirements.lock": "antlr4-python3-runtime,pylatexenc",
}
SITE = "usr/local/lib/python3.11/dist-packages"
# What a wheel may bring beside packages: commands, headers and manuals, which no stage uses.
_NOT_IMPORTED = ("bin", "etc", "include", "man", "share")
_PARTS = 8
_BUILDERS = ("setuptools", "wheel")
_PIP = (sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "--quiet")


def _forms(lock: Path) -> list[str]:
    """Wheels, but for the packages that have none; built by the tools that are installed."""
    source = SOURCE_ONLY[lock.name]
    return ["--only-binary=:all:", f"--no-binary={source}", "--no-build-isolation", "--use-pep517"]


def fetch(lock: Path, folder: Path) -> None:
    """Have a file for every package of the lock in ``folder``, by pip's own settings.

    Raises:
        KitError: pip cannot get one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    there = {sha256_file(path) for path in folder.iterdir() if path.is_file()}
    if all(hashes & there for _, hashes in locked_hashes(lock).values()):
        return
    words = ["download", "--no-deps", "--require-hashes", *_forms(lock), "--dest", str(folder)]
    # A constraints file is about what gets installed, and nothing is.
    _pip([*words, "-r", str(lock)], {**os.environ, "PIP_CONSTRAINT": os.devnull})


def install(lock: Path, wheels: Path, site: Path, epoch: int) -> None:
    """Install the lock's packages into the folder ``site``, from fetched files only.

    Raises:
        VerificationError: this Python has other build tools than the lock.
        KitError: pip failed.
    """
    _require_builders(lock_file())
    environment = {
        "HOME": str(site.parent),
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "PIP_CONFIG_FILE": os.devnull,
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": str(epoch),
        "TMPDIR": str(site.parent),
    }
    words = [
        "install",
        "--no-deps",
        "--require-hashes",
        *_forms(lock),
        "--no-compile",
        "--no-index",
    ]
    places = ["--no-cache-dir", "--find-links", str(wheels), "--target", str(site)]
    _pip([*words, *places, "-r", str(lock)], environment)
    for name in _NOT_IMPORTED:
        if (site / name).exists():
            shutil.rmtree(site / name)
    for record in sorted(site.glob("*.dist-info/RECORD")):
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


def _pip(words: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [*_PIP, *words], env=environment, capture_output=True, text=True, check=False, umask=0o022
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise KitError(f"pip {words[0]}: {lines[-1] if lines else done.stderr[-300:]}")


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
