"""Are the installed packages the wheels of the lock, file by file?

A wheel lists each of its files with a SHA-256 in ``RECORD``, which the installer keeps.
``requirements/bytes.lock`` holds, for each package that may change a byte of an artifact,
the SHA-256 of its wheel as in ``run.lock`` and a digest of that list. At the start of a
stage the installed list is compared with it, and the package's code, ``.py`` and ``.so``
files, with the list. Files stay unread while size, times and inode are those of the last
good check, of which an empty file named by all of that is the stamp.

Not looked at: files that no wheel brought, compiled caches, and all other packages.

    python -m instella.wheels FOLDER

renews ``bytes.lock`` from a folder of wheels that ``run.lock`` names.
"""

import base64
import csv
import hashlib
import importlib.util
import os
import re
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from instella.errors import BadUse, KitError, VerificationError

BYTE_PACKAGES = (
    "torch", "numpy", "tokenizers", "transformers", "safetensors", "jinja2", "regex", "sympy",
    "mpmath", "math-verify", "latex2sympy2-extended", "antlr4-python3-runtime",
    "reasoning-gym", "datasets", "pyarrow", "huggingface-hub", "blake3",
)  # fmt: skip
BYTES_LOCK = "bytes.lock"

# File times come from the kernel's tick (4 to 10 ms): a change within one tick of the
# check would show the same times, so files younger than this get no stamp.
_SETTLE_NS = 20_000_000
_CODE = re.compile(r"\.(?:py|so[.\d]*),")
_HEAD = "# Made by `python -m instella.wheels FOLDER`; see README.md.\n"
_LINE = re.compile(r"(\S+)==(\S+) wheel=([0-9a-f]{64}) record=([0-9a-f]{64})")
# What installers write into the list or the folder themselves.
_INSTALLERS_OWN = re.compile(
    r"\.dist-info/(RECORD(\.jws|\.p7s)?|INSTALLER|REQUESTED|direct_url\.json|uv_.*)$|__pycache__/"
)
_MOVED = re.compile(r"^[^/]+\.data/(?:purelib|platlib)/")
_ELSEWHERE = re.compile(r"^(\.\./|/|[^/]+\.data/)")
_ADVICE = "set the environment up from the lock again (remove .venv, then ./kit setup)"


@dataclass(frozen=True)
class Wheel:
    """One line of ``bytes.lock``: SHA-256 of the wheel, and digest of its list of files."""

    version: str
    sha256: str
    record: str


@dataclass(frozen=True)
class _Installed:
    """A package as it is installed: its folder, its list, and its code files by path."""

    name: str
    folder: str
    record: str
    code: dict[str, str]


def assert_wheels(lock: Path, stamps: Path | None) -> None:
    """Check that the byte-deciding packages are the wheels of the lock; warm, well below 0.1 s.

    Args:
        lock: ``run.lock``, with ``bytes.lock`` beside it.
        stamps: folder for the stamps of earlier checks; if there is none or it cannot be
            written, every file is read each time, about a second.

    Raises:
        VerificationError: the first package or file that differs or is missing, or
            a ``bytes.lock`` that does not belong to ``run.lock``.
    """
    pinned = read_bytes_lock(lock)
    packages = [_installed(name, wheel, lock) for name, wheel in pinned.items()]
    states = _states(packages)
    stamp = stamps / _key(pinned, packages, states) if stamps is not None else None
    if stamp is not None and stamp.is_file():
        return
    for package in packages:
        _check_package(package, pinned[package.name])
    young = max(state[2] for state in states.values())
    if stamp is not None and time.time_ns() - young > _SETTLE_NS and _states(packages) == states:
        # A stamp only saves time: a full or read-only disk must not stop a check.
        with suppress(OSError):
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.touch()


def read_bytes_lock(lock: Path) -> dict[str, Wheel]:
    """Package to wheel; each of ``BYTE_PACKAGES``, as ``run.lock`` has it.

    Raises:
        VerificationError: a package is missing or differs from ``run.lock``.
    """
    path = lock.with_name(BYTES_LOCK)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = {m[1]: Wheel(*m.groups()[1:]) for m in _LINE.finditer(text)}
    locked = locked_hashes(lock)
    for name in BYTE_PACKAGES:
        if name not in locked:
            raise VerificationError(f"{lock}: {name} is not locked, and it may change bytes")
        version, hashes = locked[name]
        wheel = found.get(name)
        if wheel is None or wheel.version != version or wheel.sha256 not in hashes:
            raise VerificationError(
                f"{path}: {name} is not the wheel of {lock.name}: renew it as "
                "requirements/README.md says"
            )
    return {name: found[name] for name in BYTE_PACKAGES}


def locked_hashes(lock: Path) -> dict[str, tuple[str, set[str]]]:
    """Distribution (lower case, with hyphens) to its locked version and SHA-256s."""
    found = {}
    for block in re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8")):
        head = re.match(r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*==\s*([^\s;\\]+)", block)
        if head:
            found[normal_name(head[1])] = (
                head[2],
                set(re.findall(r"--hash=sha256:([0-9a-f]{64})", block)),
            )
    return found


def normal_name(name: str) -> str:
    """A distribution's name in lower case with hyphens, as PEP 503 normalizes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str, wheel: Wheel, lock: Path) -> _Installed:
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise VerificationError(
            f"{name}: expected version {wheel.version} as in {lock}, found nothing; {_ADVICE}"
        ) from None
    record = distribution.read_text("RECORD") or ""
    folder = os.path.abspath(str(distribution.locate_file("")))
    lines = (line.rsplit(",", 2) for line in record.splitlines() if _CODE.search(line))
    code = {path: digest for path, digest, _ in lines if not _ELSEWHERE.match(path)}
    if not code:
        raise VerificationError(f"{name}: installed without a list of its files; {_ADVICE}")
    return _Installed(name, folder, record, code)


def _states(packages: list[_Installed]) -> dict[str, tuple[int, int, int, int]]:
    """Size, mtime, ctime and inode of each code file, some 8000; hence no ``Path``.

    Raises:
        VerificationError: a file is missing.
    """
    states = {}
    for package in packages:
        for name in package.code:
            path = f"{package.folder}/{name}"
            try:
                state = os.stat(path)
            except OSError:
                raise VerificationError(f"{path}: missing from {package.name}; {_ADVICE}") from None
            states[path] = (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)
    return states


def _key(
    pinned: dict[str, Wheel],
    packages: list[_Installed],
    states: dict[str, tuple[int, int, int, int]],
) -> str:
    digest = hashlib.sha256(repr(pinned).encode())
    for package in packages:
        digest.update(package.record.encode())
    digest.update(repr(states).encode())
    return digest.hexdigest()


def _check_package(package: _Installed, wheel: Wheel) -> None:
    if record_digest(package.record) != wheel.record:
        version = metadata.version(package.name)
        raise VerificationError(
            f"{package.name}: expected the wheel of version {wheel.version} with SHA-256 "
            f"{wheel.sha256[:16]}, found another build of {version}; {_ADVICE}"
        )
    for name, listed in package.code.items():
        path = Path(package.folder, name)
        if listed != f"sha256={_urlsafe(path)}":
            raise VerificationError(
                f"{path}: not what the wheel of {package.name} {wheel.version} brought; {_ADVICE}"
            )
    _check_imported_from(package)


def _urlsafe(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _check_imported_from(package: _Installed) -> None:
    """A folder of the same name that stands earlier on the path would be imported instead."""
    for name in package.code:
        module, slash, rest = name.partition("/")
        if not slash or rest != "__init__.py":
            continue
        spec = importlib.util.find_spec(module)
        origin = spec.origin if spec is not None and spec.origin else "nowhere"
        if not os.path.exists(origin) or not os.path.samefile(origin, Path(package.folder, name)):
            raise VerificationError(
                f"{origin}: imported in place of {package.name}'s own {module}: move it away"
            )


def record_digest(record: str) -> str:
    """SHA-256 over the lines of a ``RECORD`` that say what the wheel brought.

    Left out is what depends on the installer: its own files, compiled caches, and scripts,
    whose first line names the interpreter.
    """
    kept = sorted(",".join(row) for row in _wheels_own(record))
    return hashlib.sha256("".join(f"{line}\n" for line in kept).encode()).hexdigest()


def _wheels_own(record: str) -> Iterator[list[str]]:
    for row in csv.reader(record.splitlines()):
        path = _MOVED.sub("", row[0]) if row else ""
        if path and not _ELSEWHERE.match(path) and not _INSTALLERS_OWN.search(path):
            yield [path, *row[1:]]


def write_bytes_lock(lock: Path, folder: Path) -> None:
    """Write ``bytes.lock`` beside ``lock`` from wheels in a folder.

    Raises:
        BadUse: the wheel of a package is not there.
    """
    lines = []
    wheels = {}
    for path in sorted(folder.glob("*.whl")):
        wheels[hashlib.sha256(path.read_bytes()).hexdigest()] = path
    locked = locked_hashes(lock)
    for name in BYTE_PACKAGES:
        version, hashes = locked.get(name, ("", set()))
        chosen = sorted(hashes & wheels.keys())
        if len(chosen) != 1:
            raise BadUse(f"{folder}: needs the one wheel of {name} that {lock} names")
        with zipfile.ZipFile(wheels[chosen[0]]) as archive:
            member = next(
                item
                for item in archive.namelist()
                if re.fullmatch(r"[^/]+\.dist-info/RECORD", item)
            )
            record = archive.read(member).decode("utf-8")
        lines.append(f"{name}=={version} wheel={chosen[0]} record={record_digest(record)}\n")
    lock.with_name(BYTES_LOCK).write_text(_HEAD + "".join(lines), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Renew ``bytes.lock`` of this project from the folder given."""
    lock = Path(__file__).resolve().parents[1] / "requirements" / "run.lock"
    try:
        if len(arguments) != 1:
            raise BadUse("usage: python -m instella.wheels FOLDER")
        write_bytes_lock(lock, Path(arguments[0]))
    except KitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
