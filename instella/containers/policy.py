"""What every folder of ``containers/`` keeps to: pins by digest and hash, no latest, no secrets.

hadolint knows good style; this knows the project's own rules.
"""

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from instella.containers.dockerfiles import instructions
from instella.containers.images import FOLDER, IMAGES, Image, read_images
from instella.errors import VerificationError

_FROM = re.compile(r"FROM\s+(?:--platform=\S+\s+)?(\S+)")
_ARG = re.compile(r"ARG\s+(\w+)=(\S+)")
_PINNED = re.compile(r"\S+:(?!latest)[\w.-]+@sha256:[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_USER = re.compile(r"[1-9]\d*:[1-9]\d*")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(\[[^\]]*\])?==\S+( --hash=sha256:[0-9a-f]{64})+")
# Each begins with plain letters, which makes the search fast.
_SECRETS = tuple(
    re.compile(pattern)
    for pattern in (
        rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\r?\n[A-Za-z0-9+/=\r\n]{100}",
        rb"gh[pousr]_[A-Za-z0-9]{36}(?![A-Za-z0-9])",
        rb"hf_[A-Za-z0-9]{34}(?![A-Za-z0-9])",
        rb"AKIA[0-9A-Z]{16}(?![0-9A-Z])",
    )
)
_SECRET_NAMES = re.compile(
    r"(^|/)(\.netrc|\.pypirc|\.docker/config\.json|\.git-credentials|id_(rsa|ed25519|ecdsa)"
    r"|\.aws/credentials|auth\.conf)$"
)
# Test suites of packages hold keys made up for the purpose.
_EXAMPLES = re.compile(r"/(tests?|testing|test_\w+)/|/testing_utils\.")


def require_rules(name: str) -> None:
    """The folder of an image breaks no rule.

    Raises:
        VerificationError: the first fault.
    """
    _require_none(list(_image_faults(FOLDER / name, read_images()[name])))


def require_clean(archive: Path, forbidden: tuple[str, ...]) -> None:
    """An image's archive holds no secret and no forbidden word, as ``archive_faults`` looks.

    Raises:
        VerificationError: the first fault.
    """
    _require_none([f"{archive.name}: {fault}" for fault in archive_faults(archive, forbidden)])


def _require_none(found: list[str]) -> None:
    if found:
        others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise VerificationError(f"{found[0]}{others}; correct it and build again")


def faults(folder: Path, images: dict[str, Image]) -> list[str]:
    """What breaks a rule in the folder of images, one line each.

    Args:
        folder: ``containers/``.
        images: the lock.
    """
    return [line for name in IMAGES for line in _image_faults(folder / name, images[name])]


def _image_faults(folder: Path, image: Image) -> Iterator[str]:
    for name in ("Dockerfile", "README.md"):
        if not (folder / name).is_file():
            yield f"{folder / name}: missing"
    for lock in sorted(folder.glob("*.lock")):
        if lock.name != "debian.lock":
            yield from _lock_faults(lock)
    dockerfile = folder / "Dockerfile"
    if dockerfile.is_file():
        yield from dockerfile_faults(dockerfile, image)


def _lock_faults(lock: Path) -> Iterator[str]:
    for number, line in enumerate(lock.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("#") and not _REQUIREMENT.fullmatch(line):
            yield f"{lock}:{number}: expected NAME==VERSION --hash=sha256:HEX"


def dockerfile_faults(path: Path, image: Image) -> list[str]:
    """What breaks a rule in one Dockerfile."""
    found = []
    arguments: dict[str, str] = {}
    user = ""
    for number, line in instructions(path.read_text(encoding="utf-8")):
        where = f"{path}:{number}"
        given = _ARG.match(line)
        if given is not None:
            arguments[given[1]] = given[2]
        user = line.removeprefix("USER ") if line.startswith("USER ") else user
        found += [f"{where}: {fault}" for fault in _line_faults(line, arguments, image)]
    if not _USER.fullmatch(user):
        found.append(f"{path}: the last USER is {user or 'missing'}; give a number that is not 0")
    return found


def _line_faults(line: str, arguments: dict[str, str], image: Image) -> Iterator[str]:
    base = _FROM.match(line)
    if base is not None and base[1] != "scratch":
        reference = re.sub(r"\$\{?(\w+)\}?", lambda name: arguments.get(name[1], ""), base[1])
        if not _PINNED.fullmatch(reference):
            yield f"base {reference or base[1]!r} is not pinned by tag and digest"
        elif reference != f"{image.base}@{image.base_digest}":
            yield f"base {reference} is not the one of images.lock"
    for words in re.findall(r"pip3? (?:install|download|wheel)\b[^&|;]*", line):
        if "--require-hashes" not in words and "--no-index" not in words:
            yield "pip without --require-hashes, or --no-index for a local folder"
        if "--no-deps" not in words:
            yield "pip without --no-deps"
        if "--no-index" in words and "--no-build-isolation" not in words:
            yield "pip builds with tools that nothing pins; add --no-build-isolation"
    if re.search(r"\bpip3? uninstall\b", line):
        yield "pip uninstall: do not install what is undone"
    if re.search(r"\bsed\b[^&|;]*-i|\bsed\b[^&|;]*(site|dist)-packages", line):
        yield "sed edits installed files"
    if re.search(r"\bgit clone\b", line):
        yield "git clone takes a moving branch; fetch a commit"
    for name in re.findall(r"git -C \S+ fetch [^&|;]*\"?\$\{?(\w+)\}?\"?", line):
        if not _COMMIT.fullmatch(arguments.get(name, "")):
            yield f"{name} is not a full commit"
    if re.search(r"curl|wget|^ADD\s+https?:", line):
        yield "fetches a file that nothing checks"
    if re.search(r"\blatest\b", line):
        yield "names latest"
    if re.match(r"(ENV|ARG)\s+\w*(TOKEN|SECRET|PASSWORD|API_KEY)\w*", line):
        yield "a secret in the image's history"


def archive_faults(archive: Path, forbidden: tuple[str, ...]) -> list[str]:
    """Secrets, and words that must not be there, in an image's layers and configuration.

    Args:
        archive: as ``write_archive`` writes it.
        forbidden: such as the building machine's names.
    """
    words = [word.encode() for word in forbidden if word]
    found: list[str] = []
    with tarfile.open(archive) as outer:
        image = json.loads(_blob(outer, "manifest.json").read())[0]
        found += _data_faults("configuration", _blob(outer, image["Config"]).read(), words)
        for name in image["Layers"]:
            with tarfile.open(fileobj=_blob(outer, name), mode="r|") as layer:
                for member in layer:
                    if _SECRET_NAMES.search(member.name):
                        found.append(f"{member.name}: a file for secrets")
                    data = layer.extractfile(member) if member.isreg() else None
                    found += _data_faults(member.name, data.read() if data else b"", words)
    return found


def _blob(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    file = archive.extractfile(name)
    if file is None:
        raise VerificationError(f"an image's archive: {name} is no file")
    return file


def _data_faults(name: str, data: bytes, words: list[bytes]) -> Iterator[str]:
    # Keys are text; what looks like one in a program is chance or made up.
    is_text = b"\0" not in data[:4096]
    if (
        is_text
        and not _EXAMPLES.search(f"/{name}")
        and any(pattern.search(data) for pattern in _SECRETS)
    ):
        yield f"{name}: looks like a secret"
    for word in words:
        if word in data:
            yield f"{name}: holds {word.decode()!r}"
