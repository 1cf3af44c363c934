"""The harnesses behind the published scores, each in an image of its own: its command line.

They want packages that fit nothing else here. ``containers/harnesses.lock`` pins each by its full
commit and, once built, by the image's id; nothing is rendered for one that is not pinned.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from instella.canonical import read_json
from instella.errors import BadUse, VerificationError

FORMAT = "instella.harnesses/1"
FOLDER = Path(__file__).resolve().parents[2] / "containers"
LOCK = "harnesses.lock"
# What a container sees of the host: name of the value, place in it, and whether it may write.
_MOUNTS = (("model", "/model", False), ("output", "/output", True), ("hub", "/hub", True))
_COMMIT = re.compile(r"[0-9a-f]{40}")
_IMAGE = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Harness:
    """One line of the lock.

    Attributes:
        name: of its folder in ``containers/``.
        program: what it is called.
        named: its commit as the publication names it.
        commit: all forty digits; None while they are not known.
        image: id of the built image, ``sha256:...``; None until it is built.
    """

    name: str
    program: str
    named: str
    commit: str | None
    image: str | None


def read_harnesses(folder: Path = FOLDER) -> dict[str, Harness]:
    """The lock, by name.

    Raises:
        VerificationError: not the lock's form, or a commit or image that is none.
    """
    path = folder / LOCK
    value = read_json(path)
    listed = value.get("harnesses") if isinstance(value, dict) else None
    if not isinstance(listed, dict) or value.get("format") != FORMAT:
        raise VerificationError(f"{path}: expected {FORMAT}")
    return {name: _harness(path, name, entry) for name, entry in listed.items()}


def _harness(path: Path, name: str, entry: Any) -> Harness:
    if not isinstance(entry, dict) or set(entry) != {"commit", "image", "named", "program"}:
        raise VerificationError(f"{path}: {name}: expected commit, image, named, program")
    commit, image = entry["commit"], entry["image"]
    is_commit = isinstance(commit, str) and _COMMIT.fullmatch(commit)
    if commit is not None and not (is_commit and commit.startswith(str(entry["named"]))):
        raise VerificationError(
            f"{path}: {name}: commit {commit!r} is not forty digits that begin {entry['named']}"
        )
    if image is not None and not (isinstance(image, str) and _IMAGE.fullmatch(image)):
        raise VerificationError(f"{path}: {name}: image {image!r} is no sha256 digest")
    return Harness(name, str(entry["program"]), str(entry["named"]), commit, image)


def require_pinned(harness: Harness, folder: Path = FOLDER) -> str:
    """The id of its image.

    Raises:
        BadUse: the commit, the packages or the image are not pinned: which, and what to do.
    """
    place = folder / harness.name
    if harness.commit is None:
        raise BadUse(
            f"{folder / LOCK}: {harness.name}: {harness.program} is known by {harness.named} only, "
            "which pins nothing; write its full commit there"
        )
    if not (place / "requirements.lock").is_file():
        raise BadUse(
            f"{place}: requirements.lock is missing, so what the image would hold is not known; "
            "its README.md says what belongs in it"
        )
    if harness.image is None:
        raise BadUse(
            f"{folder / LOCK}: {harness.name}: no image; build it with `docker build --build-arg "
            f"{harness.program.upper()}={harness.commit} {place}` and write its id there"
        )
    return harness.image


def container_line(
    image: str, words: Sequence[str], values: Mapping[str, str], user: tuple[int, int]
) -> list[str]:
    """The command line of docker that runs a harness's own in its image.

    It has a network, since a harness fetches its data sets, into the folder ``hub``.

    Args:
        image: id of the image.
        words: the harness's command line; the words that are ``model`` and ``output`` become
            their places in the container.
        values: ``model``, ``output`` and ``hub``, folders of the host; ``output`` may be a
            ``.jsonl`` file, whose folder is then mounted.
        user: numbers of the user and group that the files belong to.

    Raises:
        BadUse: a folder that is not given or has no full path.
    """
    places = {}
    mounts = []
    for name, place, is_writable in _MOUNTS:
        given = values.get(name, "")
        if not given.startswith("/") or ":" in given:
            raise BadUse(f"--with {name}={given}: give a folder by its full path, without a colon")
        path = PurePosixPath(given)
        is_file = path.suffix == ".jsonl"
        folder = path.parent if is_file else path
        places[given] = f"{place}/{path.name}" if is_file else place
        mounts += ["--volume", f"{folder}:{place}" + ("" if is_writable else ":ro")]
    return [
        "docker", "run", "--rm", "--init", "--user", "{}:{}".format(*user), "--read-only",
        "--tmpfs", "/tmp", "--cap-drop", "ALL", "--device", "/dev/kfd", "--device", "/dev/dri",
        "--group-add", "video", "--group-add", "render", "--ipc", "host",
        "--security-opt", "seccomp=unconfined", "--env", "HF_HOME=/hub", "--env", "HOME=/tmp",
        *mounts, image, *(places.get(word, word) for word in words),
    ]  # fmt: skip
