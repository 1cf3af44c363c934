"""The base of an image: a Debian root file system out of exactly the locked packages.

``debian.lock`` names each package with version, architecture and SHA-256. The packages come
from apt's own mirrors and are checked; mmdebstrap then installs them from a repository that
holds nothing else, so that neither a newer version on a mirror nor the name of a mirror
reaches the image.
"""

import email.utils
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from instella.canonical import sha256_file
from instella.errors import BadUse, KitError, VerificationError

SUITE = "bookworm"
WANTED = ("libstdc++6", "python3.11", "usr-is-merged")
_LINE = re.compile(r"([a-z0-9][a-z0-9+.-]*)=(\S+) (amd64|all) sha256:([0-9a-f]{64})")
_HEAD = re.compile(r"# snapshot (\d{8}T\d{6}Z)\n")
_STAMP = "%Y%m%dT%H%M%SZ"
_MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"
_REPOSITORY = f"dists/{SUITE}/main/binary-amd64"


@dataclass(frozen=True)
class Package:
    """One package: name, version, ``amd64`` or ``all``, SHA-256 of its file."""

    name: str
    version: str
    architecture: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Name that apt gives the file; a colon in the version is written %3a."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"


@dataclass(frozen=True)
class DebianLock:
    """The packages, and the moment at which Debian had them (``20261130T000000Z``)."""

    snapshot: str
    packages: tuple[Package, ...]

    @property
    def epoch(self) -> int:
        """The moment in seconds since 1970; the time of everything that a build makes."""
        return int(datetime.strptime(self.snapshot, _STAMP).replace(tzinfo=UTC).timestamp())


def read_debian_lock(path: Path) -> DebianLock:
    """Read ``debian.lock``.

    Raises:
        VerificationError: a line that is none, with its number.
    """
    text = path.read_text(encoding="utf-8")
    head = _HEAD.match(text)
    if head is None:
        raise VerificationError(f"{path}, line 1: expected '# snapshot YYYYMMDDTHHMMSSZ'")
    packages = []
    for number, line in enumerate(text.splitlines()[1:], 2):
        found = _LINE.fullmatch(line)
        if found is None:
            raise VerificationError(
                f"{path}, line {number}: expected NAME=VERSION ARCHITECTURE sha256:HEX"
            )
        packages.append(Package(*found.groups()))
    return DebianLock(head[1], tuple(packages))


def write_debian_lock(lock: DebianLock, path: Path) -> None:
    """Write ``debian.lock``, packages by name."""
    lines = [
        f"{item.name}={item.version} {item.architecture} sha256:{item.sha256}\n"
        for item in sorted(lock.packages, key=lambda item: item.name)
    ]
    path.write_text(f"# snapshot {lock.snapshot}\n{''.join(lines)}", encoding="utf-8")


def fetch(lock: DebianLock, folder: Path) -> None:
    """Have every locked package in ``folder``, with the locked bytes.

    Raises:
        KitError: apt's mirrors do not have a version.
        VerificationError: other bytes under a locked name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [item for item in lock.packages if not _is_there(folder, item)]
    if missing:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".apt-") as place:
            download([f"{item.name}={item.version}" for item in missing], Path(place), lock)
            for item in missing:
                _take(Path(place) / item.file_name, item, folder)


def download(wanted: Iterable[str], place: Path, lock: DebianLock | None = None) -> None:
    """Let apt put packages (``NAME=VERSION``) into a folder."""
    os.chmod(place, 0o755)
    command = ["apt-get", "--quiet=2", "-o", "APT::Sandbox::User=root", "download", *wanted]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if line.startswith("E:")), "")
        when = f" of {lock.snapshot}" if lock else ""
        raise KitError(
            f"apt-get download: {reason or done.stderr[-200:]}; run apt-get update, or add Debian's "
            f"snapshot archive{when} to apt's sources where a mirror has moved on"
        )


def _is_there(folder: Path, item: Package) -> bool:
    path = folder / item.file_name
    return path.is_file() and sha256_file(path) == item.sha256


def _take(file: Path, item: Package, folder: Path) -> None:
    found = sha256_file(file) if file.is_file() else "nothing"
    if found != item.sha256:
        raise VerificationError(
            f"{item.file_name}: expected sha256 {item.sha256}, found {found}; the lock was made "
            "from other bytes"
        )
    os.replace(file, folder / item.file_name)


def build_root(lock: DebianLock, debs: Path, target: Path) -> None:
    """Write the root file system as a tar, from packages that ``fetch`` put into ``debs``.

    Raises:
        KitError: mmdebstrap is missing or failed.
    """
    # In the folder for temporary files, whose path other users can follow and has no blanks.
    with tempfile.TemporaryDirectory(prefix="instella-debian-") as place:
        repository = Path(place)
        _write_repository(lock, debs, repository)
        _mmdebstrap(target, lock.epoch, [f"deb [trusted=yes] copy:{repository} {SUITE} main"])


def _mmdebstrap(target: Path, epoch: int, sources: list[str]) -> None:
    if shutil.which("mmdebstrap") is None:
        raise BadUse("mmdebstrap is not installed: apt install mmdebstrap")
    command = [
        "mmdebstrap", "--quiet", '--aptopt=APT::Sandbox::User "root"', "--variant=essential", "--format=tar", f"--hook-dir={_MERGED}",
        f"--include={','.join(WANTED)}", SUITE, str(target), *sources,
    ]  # fmt: skip
    environment = {
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "SOURCE_DATE_EPOCH": str(epoch),
        "TZ": "UTC",
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, umask=0o022
    )
    if done.returncode:
        reason = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        raise KitError(f"mmdebstrap: {' '.join(reason) or done.stderr[-300:]}")


def _write_repository(lock: DebianLock, debs: Path, folder: Path) -> None:
    """A repository with the locked packages and no others; the lock stands for signatures."""
    pool, index = folder / "pool", folder / _REPOSITORY
    pool.mkdir()
    index.mkdir(parents=True)
    entries = []
    for item in lock.packages:
        file = debs / item.file_name
        shutil.copyfile(file, pool / item.file_name)
        control = subprocess.run(
            ["dpkg-deb", "--field", str(file)], capture_output=True, text=True, check=True
        ).stdout.rstrip("\n")
        entries.append(
            f"{control}\nFilename: pool/{item.file_name}\nSize: {file.stat().st_size}\n"
            f"SHA256: {item.sha256}\n\n"
        )
    packages = index / "Packages"
    packages.write_text("".join(entries), encoding="utf-8")
    release = (
        f"Origin: lock\nSuite: {SUITE}\nCodename: {SUITE}\nArchitectures: amd64\n"
        f"Components: main\nDate: {email.utils.formatdate(lock.epoch, usegmt=True)}\n"
        f"SHA256:\n {sha256_file(packages)} {packages.stat().st_size} main/binary-amd64/Packages\n"
    )
    (folder / "dists" / SUITE / "Release").write_text(release, encoding="utf-8")
    for path in [folder, *folder.rglob("*")]:
        os.chmod(path, 0o755 if path.is_dir() else 0o644)


def resolve(folder: Path) -> DebianLock:
    """A lock of what apt's mirrors give at this moment.

    Args:
        folder: gets the packages' files.

    Raises:
        KitError: mmdebstrap or apt failed.
    """
    snapshot = datetime.now(UTC).strftime("%Y%m%dT000000Z")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".lock-") as place:
        root = Path(place) / "root.tar"
        _mmdebstrap(root, DebianLock(snapshot, ()).epoch, [])
        installed = installed_packages(root)
        names = [f"{name}={fields['Version']}" for name, fields in installed.items()]
        download(names, Path(place))
        packages = []
        for name, fields in installed.items():
            item = Package(name, fields["Version"], fields["Architecture"], "")
            file = Path(place) / item.file_name
            packages.append(Package(name, item.version, item.architecture, sha256_file(file)))
            os.replace(file, folder / item.file_name)
    return DebianLock(snapshot, tuple(packages))


def installed_packages(root: Path) -> dict[str, Mapping[str, str]]:
    """Package to the fields of its entry in dpkg's list, in a root file system's tar."""
    with tarfile.open(root) as archive:
        file = archive.extractfile("./var/lib/dpkg/status")
        assert file is not None
        text = file.read().decode("utf-8")
    found = {}
    for block in text.strip().split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", block, re.MULTILINE))
        found[fields["Package"]] = fields
    return dict(sorted(found.items()))
