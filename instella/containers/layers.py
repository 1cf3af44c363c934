"""Layers and archives of OCI images, written by hand so that equal files give equal bytes.

Entries are sorted, times are one moment or earlier, owners are numbers, nothing is
compressed. The archive serves docker, podman, skopeo and apptainer alike: it is an OCI layout
with the ``manifest.json`` of ``docker save`` beside it.
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from instella.canonical import json_bytes, sha256_bytes
from instella.containers.dockerfiles import Assembly

_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class Layer:
    """An uncompressed layer: its file, digest, size, and a word on what it holds."""

    file: Path
    digest: str
    size: int
    about: str


class _Hashing:
    """A file that hashes what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return self._file.write(data)

    def digest(self) -> str:
        return f"sha256:{self._digest.hexdigest()}"


def _layer(target: Path, about: str, fill: Callable[[tarfile.TarFile], None]) -> Layer:
    with target.open("wb") as file:
        hashing = _Hashing(file)
        with tarfile.open(
            fileobj=hashing,
            mode="w|",
            format=tarfile.GNU_FORMAT,
            bufsize=1 << 20,  # type: ignore[call-overload]
        ) as archive:
            fill(archive)
    return Layer(target, hashing.digest(), target.stat().st_size, about)


def root_layer(root: Path, target: Path, epoch: int, dropped: Callable[[str], bool]) -> Layer:
    """Layer of a root file system's tar, in the order it has.

    Args:
        root: tar.
        target: the layer's file.
        epoch: later times become this.
        dropped: tells whether a path (``etc/hostname``) is left out.
    """

    def fill(archive: tarfile.TarFile) -> None:
        with tarfile.open(root) as source:
            for member in source:
                name = member.name.removeprefix("./").rstrip("/")
                if name in ("", ".") or dropped(name) or member.ischr() or member.isblk():
                    continue
                data = source.extractfile(member) if member.isreg() else None
                member.name = name
                if member.islnk():
                    member.linkname = member.linkname.removeprefix("./")
                archive.addfile(_plain(member, min(int(member.mtime), epoch)), data)

    return _layer(target, "Debian packages", fill)


def folder_layer(
    folder: Path, prefix: str, target: Path, epoch: int, links: Mapping[str, str]
) -> Layer:
    """Layer of a folder's files below ``prefix``, owned by root, and of symbolic links.

    Args:
        folder: plain files.
        prefix: path in the image.
        target: the layer's file.
        epoch: time of every entry.
        links: path in the image to where it leads.
    """

    def fill(archive: tarfile.TarFile) -> None:
        for name, leads_to in sorted(links.items()):
            link = tarfile.TarInfo(name)
            link.type, link.linkname, link.mode = tarfile.SYMTYPE, leads_to, 0o777
            archive.addfile(_plain(link, epoch))
        for path in sorted(folder.rglob("*"), key=lambda item: item.relative_to(folder).as_posix()):
            member = tarfile.TarInfo(f"{prefix}/{path.relative_to(folder).as_posix()}")
            if path.is_dir():
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(_plain(member, epoch))
                continue
            state = path.stat()
            member.mode = 0o755 if state.st_mode & 0o100 else 0o644
            member.size = state.st_size
            with path.open("rb") as data:
                archive.addfile(_plain(member, epoch), data)

    return _layer(target, "Python packages", fill)


def _plain(member: tarfile.TarInfo, mtime: int) -> tarfile.TarInfo:
    member.mtime = mtime
    member.uname = member.gname = ""
    member.pax_headers = {}
    return member


@dataclass(frozen=True)
class Built:
    """A finished image: digests of its manifest and configuration, and its layers."""

    manifest: str
    config: str
    layers: tuple[Layer, ...]


def write_archive(
    layers: tuple[Layer, ...], assembly: Assembly, name: str, epoch: int, target: Path
) -> Built:
    """Write the image's archive.

    Args:
        layers: from the bottom up.
        assembly: what the configuration says of variables and user.
        name: repository name; the tag is made of the manifest's digest.
        epoch: time of its making, as it says.
        target: the archive.
    """
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    variables = [f"{key}={value}" for key, value in sorted(assembly.environment.items())]
    config = json_bytes(
        {
            "architecture": "amd64",
            "config": {"Env": variables, "User": assembly.user},
            "created": created,
            "history": [{"created": created, "created_by": layer.about} for layer in layers],
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
        }
    )
    manifest = json_bytes(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST_TYPE,
            "config": _descriptor(_CONFIG_TYPE, config),
            "layers": [
                {"mediaType": _LAYER_TYPE, "digest": layer.digest, "size": layer.size}
                for layer in layers
            ],
        }
    )
    built = Built(_digest(manifest), _digest(config), layers)
    tag = f"{name}:{built.manifest[7:19]}"
    index = {"schemaVersion": 2, "manifests": [_descriptor(_MANIFEST_TYPE, manifest)]}
    docker = [
        {
            "Config": _blob(built.config),
            "Layers": [_blob(layer.digest) for layer in layers],
            "RepoTags": [tag],
        }
    ]
    small = {
        _blob(built.config): config,
        _blob(built.manifest): manifest,
        "index.json": json_bytes(index),
        "manifest.json": json_bytes(docker),
        "oci-layout": json_bytes({"imageLayoutVersion": "1.0.0"}),
    }
    _write_tar(target, small, layers, epoch)
    return built


def _write_tar(
    target: Path, small: Mapping[str, bytes], layers: tuple[Layer, ...], epoch: int
) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tarfile.open(temporary, "w", format=tarfile.GNU_FORMAT) as archive:
            for name in ("blobs", "blobs/sha256"):
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(_plain(folder, epoch))
            for name, data in sorted(small.items()):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(_plain(member, epoch), io.BytesIO(data))
            for layer in layers:
                member = tarfile.TarInfo(_blob(layer.digest))
                member.size = layer.size
                with layer.file.open("rb") as file:
                    archive.addfile(_plain(member, epoch), file)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _descriptor(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _digest(data: bytes) -> str:
    return f"sha256:{sha256_bytes(data)}"


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")
