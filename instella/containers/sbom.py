"""List of an image's parts in CycloneDX 1.5 JSON, from its locks alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from instella.canonical import json_bytes
from instella.containers.debian import SUITE, DebianLock
from instella.containers.images import Image
from instella.wheels import locked_hashes


def cyclonedx(image: Image, debian: DebianLock | None, locks: Sequence[Path]) -> bytes:
    """The list as canonical JSON; without a time or serial number, so that it is reproducible.

    Args:
        image: what the list is about.
        debian: its Debian packages; None where they are those of a base image.
        locks: of its Python packages; a version with several files lists the hashes of all.
    """
    parts = [_debian(item) for item in debian.packages] if debian else []
    for lock in locks:
        parts += [
            python_component(name, *found) for name, found in sorted(locked_hashes(lock).items())
        ]
    if image.base is not None:
        parts.append(_base(image))
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
            "components": parts,
        }
    )


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
