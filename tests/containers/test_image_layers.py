"""Layers and archives come out the same from the same files."""

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from instella.containers.debian import (
    DebianLock,
    Package,
    fetch,
    read_debian_lock,
    write_debian_lock,
)
from instella.containers.dockerfiles import Assembly
from instella.containers.layers import Built, folder_layer, root_layer, write_archive
from instella.errors import VerificationError

EPOCH = 1_700_000_000
ASSEMBLY = Assembly(("lower.tar", "upper.tar"), {"PATH": "/bin"}, "1:2")


def make(folder: Path, late: bool) -> Built:
    """An image from files made in another order, at other times, by another umask."""
    site = folder / "site"
    names = ["b/x.py", "a.py", "b/y.sh", "b.py"]
    for name in reversed(names) if late else names:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(name)
        os.chmod(site / name, (0o700 if late else 0o755) if name.endswith("sh") else 0o640)
    os.utime(site / "a.py", (1, 1) if late else (EPOCH * 2, EPOCH * 2))
    with tarfile.open(folder / "root.tar", "w") as archive:
        for name in ("./etc", "./etc/hostname", "./etc/os-release"):
            member = tarfile.TarInfo(name)
            member.mtime, member.uname = (EPOCH + 9, "me") if late else (EPOCH + 5, "")
            if name == "./etc":
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
    lower = root_layer(
        folder / "root.tar", folder / "lower.tar", EPOCH, lambda name: name == "etc/hostname"
    )
    upper = folder_layer(site, "opt/x", folder / "upper.tar", EPOCH, {"bin/x": "/opt/x/b/y.sh"})
    return write_archive((lower, upper), ASSEMBLY, "instella/x", EPOCH, folder / "x.tar")


def test_two_builds_are_one(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "other place").mkdir()
    first, second = make(tmp_path / "1", False), make(tmp_path / "other place", True)
    assert (first.manifest, first.config) == (second.manifest, second.config)
    archives = [path / "x.tar" for path in (tmp_path / "1", tmp_path / "other place")]
    assert archives[0].read_bytes() == archives[1].read_bytes()


def test_the_archive_is_what_its_digests_say(tmp_path: Path) -> None:
    built = make(tmp_path, False)
    with tarfile.open(tmp_path / "x.tar") as archive:
        blobs = {
            name: archive.extractfile(name).read()  # type: ignore[union-attr]
            for name in archive.getnames()
            if archive.getmember(name).isreg()
        }
    for name, data in blobs.items():
        if name.startswith("blobs/"):
            assert hashlib.sha256(data).hexdigest() == Path(name).name
    index, docker = json.loads(blobs["index.json"]), json.loads(blobs["manifest.json"])
    assert index["manifests"][0]["digest"] == built.manifest
    assert docker[0]["Config"] == f"blobs/{built.config.replace(':', '/')}"
    assert json.loads(blobs[docker[0]["Config"]])["config"] == {"Env": ["PATH=/bin"], "User": "1:2"}
    with tarfile.open(tmp_path / "lower.tar") as layer:
        assert [(item.name, item.mtime) for item in layer] == [
            ("etc", EPOCH),
            ("etc/os-release", EPOCH),
        ]
    with tarfile.open(tmp_path / "upper.tar") as layer:
        assert {(item.name, oct(item.mode)) for item in layer if item.isreg()} == {
            ("opt/x/a.py", "0o644"),
            ("opt/x/b.py", "0o644"),
            ("opt/x/b/x.py", "0o644"),
            ("opt/x/b/y.sh", "0o755"),
        }


def test_the_debian_lock_reads_as_written(tmp_path: Path) -> None:
    packages = (Package("a", "1:2+b", "amd64", "0" * 64), Package("b", "3", "all", "1" * 64))
    lock = DebianLock("20261130T000000Z", packages)
    write_debian_lock(lock, tmp_path / "lock")
    assert read_debian_lock(tmp_path / "lock") == lock
    assert packages[0].file_name == "a_1%3a2+b_amd64.deb"
    with (tmp_path / "lock").open("a") as file:
        file.write("c=1 amd64\n")
    with pytest.raises(VerificationError, match="line 4: expected NAME=VERSION"):
        read_debian_lock(tmp_path / "lock")


def test_locked_packages_that_lie_there_are_not_fetched(tmp_path: Path) -> None:
    data = b"deb"
    item = Package("a", "1", "all", hashlib.sha256(data).hexdigest())
    (tmp_path / item.file_name).write_bytes(data)
    fetch(DebianLock("20261130T000000Z", (item,)), tmp_path)
    assert os.listdir(tmp_path) == [item.file_name]
