"""Builds the images for CPUs: Debian packages below, Python packages of a lock above.

They hold no code of the project, which is mounted when a stage runs. ``cpu-verl`` is ``cpu``
with one layer more, in a folder of its own: verl needs other versions than the stages do.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from instella.containers import debian, layers, policy, sbom, wheelhouse
from instella.containers.dockerfiles import read_assembly
from instella.containers.engines import signals_raise
from instella.containers.images import DEBIAN_LOCK, FOLDER, Image, archive_path, made_of
from instella.containers.layers import Layer
from instella.errors import BadUse, KitError, VerificationError

LINKS = {"usr/local/bin/python3": "/usr/bin/python3.11"}
# Of the building machine, of its apt, or of the moment of the build.
_DROPPED = re.compile(
    r"(dev|var/cache|var/lib/apt|var/log|etc/apt|tmp|run)/.+"
    r"|etc/(hostname|hosts|resolv\.conf|machine-id|passwd-|shadow-|group-|gshadow-)"
    r"|var/lib/dpkg/.*-old|var/lib/dbus/machine-id|usr/local/bin/python3"
)


@dataclass(frozen=True)
class Result:
    """A built image, its archive and its list of parts (CycloneDX JSON)."""

    image: Image
    archive: Path
    parts: Path


def build(
    name: str,
    downloads: Path,
    folder: Path,
    say: Callable[[str], None],
) -> Result:
    """Build from the locks alone; equal locks give equal digests anywhere.

    Args:
        name: one of ``images.CPU_IMAGES``.
        downloads: fetched packages are kept below it.
        folder: gets archive and list of parts.
        say: progress lines.

    Raises:
        KitError: a package cannot be had, or a tool failed.
        VerificationError: other bytes than the lock's, or what ``policy`` forbids.
        BadUse: a folder whose path has a colon.
    """
    if ":" in str(folder.absolute()):
        raise BadUse(
            f"{folder.absolute()}: the image's Python is started from below this folder, and to its "
            "loader a colon ends a path; set downloads in config.yaml to a path without one"
        )
    policy.require_rules(name)
    lock = debian.read_debian_lock(DEBIAN_LOCK)
    sites = wheelhouse.sites(name)
    folder.mkdir(parents=True, exist_ok=True)
    say("fetching packages that are not there yet")
    debian.fetch(lock, downloads / "debian")
    for site in sites:
        wheelhouse.fetch(site, downloads / "wheels")
    with signals_raise(), tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as text:
        place = Path(text)
        os.chmod(place, 0o755)
        made = _layers(lock, sites, downloads, place, say)
        say("writing the archive, and looking for secrets in it")
        return _finish(name, made, lock.epoch, place, folder)


def _layers(
    lock: debian.DebianLock,
    sites: tuple[wheelhouse.Site, ...],
    downloads: Path,
    place: Path,
    say: Callable[[str], None],
) -> tuple[Layer, ...]:
    root = place / "root"
    say("installing Debian packages")
    debian.build_root(lock, downloads / "debian", place / "root.tar")
    _unpack(place / "root.tar", root)
    made = [layers.root_layer(place / "root.tar", place / "lower.tar", lock.epoch, _is_dropped)]
    for site, file in zip(sites, ("upper.tar", "extra.tar"), strict=False):
        packages = place / "site"
        say(f"installing Python packages of {site.lock}")
        wheelhouse.install(site, downloads / "wheels", packages, lock.epoch)
        say("compiling Python packages")
        wheelhouse.compile_packages(root, packages, f"/{site.folder}", len(os.sched_getaffinity(0)))
        links = LINKS if site.folder == wheelhouse.SITE else {}
        made.append(layers.folder_layer(packages, site.folder, place / file, lock.epoch, links))
        shutil.rmtree(packages)
    # Before the archive, which needs the room.
    shutil.rmtree(root)
    return tuple(made)


def _finish(name: str, made: tuple[Layer, ...], epoch: int, place: Path, folder: Path) -> Result:
    dockerfile = FOLDER / name / "Dockerfile"
    assembly = read_assembly(dockerfile)
    files = tuple(layer.file.name for layer in made)
    if assembly.layers != files:
        raise VerificationError(
            f"{dockerfile}: adds {', '.join(assembly.layers)}, and the locks make "
            f"{', '.join(files)}"
        )
    unnamed = place / "archive.tar"
    built = layers.write_archive(made, assembly, f"instella/{name}", epoch, unnamed)
    # Its name is in whatever took down where it was built.
    policy.require_clean(unnamed, (place.name,))
    digests = tuple(layer.digest for layer in built.layers)
    image = Image(name, None, None, built.manifest, built.config, digests, made_of(name))
    archive = archive_path(folder, image)
    parts = archive.with_suffix(".cdx.json")
    # Both are whole before either has its name, and the archive, which others ask for, is last.
    listed = place / "parts.json"
    listed.write_bytes(sbom.cyclonedx(image))
    os.replace(listed, parts)
    os.replace(unnamed, archive)
    return Result(image, archive, parts)


def _is_dropped(name: str) -> bool:
    return _DROPPED.fullmatch(name) is not None


def _unpack(archive: Path, folder: Path) -> None:
    folder.mkdir()
    words = ["tar", "-xf", str(archive), "-C", str(folder), "--exclude=./dev/*", "--no-same-owner"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KitError(f"tar: {done.stderr[-300:]}")
