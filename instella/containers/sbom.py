"""List of an image's parts in CycloneDX 1.5 JSON, from its locks alone."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from instella.canonical import json_bytes
from instella.containers.debian import SUITE, read_debian_lock
from instella.containers.dockerfiles import instructions
from instella.containers.images import CPU_IMAGES, DEBIAN_LOCK, FOLDER, Image, require_lock
from instella.containers.wheelhouse import sites
from instella.wheels import locked_hashes

_ARGUMENT = re.compile(r"ARG (\w+)=(\S+)")
_FETCHED = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+)\.git \"\$\{(\w+)\}\"")


def cyclonedx(image: Image) -> bytes:
    """The list as canonical JSON; without a time or serial number, so that it is reproducible.

    A version with several files lists the hashes of all. What a base image holds is not known
    here: it is one part, by its digest.

    Raises:
        BadUse: a lock is missing.
    """
    listed = _layered(image) if image.name in CPU_IMAGES else _built(image)
    # Two locks of an image may hold the same package.
    parts = {part["bom-ref"]: part for part in listed}
    return json_bytes(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "component": {
                    "type": "container",
                    "bom-ref": image.name,
                    "name": f"instella/{image.name}",
                    "version": image.manifest or "unlocked",
                }
            },
            "components": list(parts.values()),
        }
    )


def _layered(image: Image) -> Iterator[dict[str, Any]]:
    """Parts of an image out of packages."""
    for item in read_debian_lock(DEBIAN_LOCK).packages:
        yield _debian(item)
    for site in sites(image.name):
        for name, found in sorted(site.packages.items()):
            yield python_component(name, *found)


def _built(image: Image) -> Iterator[dict[str, Any]]:
    """Parts of an image on a base, which a Dockerfile makes."""
    yield _base(image)
    require_lock(image.name)
    for lock in sorted((FOLDER / image.name).glob("*.lock")):
        for name, found in sorted(locked_hashes(lock).items()):
            yield python_component(name, *found)
    arguments: dict[str, str] = {}
    text = (FOLDER / image.name / "Dockerfile").read_text(encoding="utf-8")
    for _, line in instructions(text):
        arguments |= dict(_ARGUMENT.findall(line))
        for owner, name, argument in _FETCHED.findall(line):
            yield _source(owner, name, arguments[argument])


def _debian(item: Any) -> dict[str, Any]:
    place = f"pkg:deb/debian/{quote(item.name)}@{quote(item.version, safe='')}"
    return {
        "type": "library",
        "bom-ref": f"deb:{item.name}",
        "name": item.name,
        "version": item.version,
        "purl": f"{place}?arch={item.architecture}&distro={SUITE}",
        "hashes": [{"alg": "SHA-256", "content": item.sha256}],
    }


def python_component(name: str, version: str, hashes: set[str]) -> dict[str, Any]:
    """A locked Python package, with the SHA-256 of each file that the lock allows."""
    return {
        "type": "library",
        "bom-ref": f"pypi:{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{quote(version, safe='')}",
        "hashes": [{"alg": "SHA-256", "content": item} for item in sorted(hashes)],
    }


def _base(image: Image) -> dict[str, Any]:
    digest = (image.base_digest or "").removeprefix("sha256:")
    return {
        "type": "container",
        "bom-ref": "base",
        "name": image.base,
        "version": image.base_digest or "unlocked",
        "hashes": [{"alg": "SHA-256", "content": digest}] if digest else [],
    }


def _source(owner: str, name: str, commit: str) -> dict[str, Any]:
    place = f"pkg:github/{owner.lower()}/{name.lower()}@{commit}"
    return {
        "type": "library",
        "bom-ref": f"github:{owner}/{name}",
        "name": name,
        "version": commit,
        "purl": place,
    }
