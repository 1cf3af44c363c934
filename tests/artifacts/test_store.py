"""The store: publishing, placing, quarantine."""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from instella.artifacts.manifest import Entry, Manifest
from instella.artifacts.store import Store, plain_files
from instella.canonical import sha256_bytes

from .toy import in_child


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def publish(store: Store, folder: Path, data: bytes) -> Entry:
    return store.publish(write(folder / "new", data))


def manifest_of(**files: Entry) -> Manifest:
    identity = {"stage": "s", "kind": "toy", "inputs": {}}
    return Manifest(
        "s", "toy", "computed", identity, {k.replace("__", "/"): v for k, v in files.items()}
    )


def test_publish_moves_and_makes_read_only(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    entry = publish(store, tmp_path, b"abc")
    path = store.object_path(entry.sha256)
    assert entry == Entry(sha256_bytes(b"abc"), 3)
    assert path.read_bytes() == b"abc" and stat.S_IMODE(path.stat().st_mode) == 0o444
    assert path.relative_to(store.root).parts == ("sha256", entry.sha256[:2], entry.sha256)
    assert not (tmp_path / "new").exists()
    assert store.examine(entry) is None


def test_publish_twice_keeps_the_first_object(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    inode = store.object_path(publish(store, tmp_path, b"abc").sha256).stat().st_ino
    assert store.object_path(publish(store, tmp_path, b"abc").sha256).stat().st_ino == inode


@pytest.mark.parametrize("damage", [b"abX", b"ab", b"", b"abcd"])
def test_publish_replaces_a_damaged_object(tmp_path: Path, damage: bytes) -> None:
    store = Store(tmp_path / "store")
    entry = publish(store, tmp_path, b"abc")
    path = store.object_path(entry.sha256)
    path.chmod(0o644)
    path.write_bytes(damage)
    assert store.examine(entry) is not None
    publish(store, tmp_path, b"abc")
    assert store.examine(entry) is None
    assert [file.read_bytes() for file in (store.root / "quarantine").iterdir()] == [damage]


def test_a_file_with_a_second_name_is_copied(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    other = write(tmp_path / "download", b"abc")
    os.link(other, tmp_path / "new")
    entry = store.publish(tmp_path / "new")
    other.write_bytes(b"XYZ")
    assert store.examine(entry) is None
    assert not (tmp_path / "new").exists()


@pytest.fixture
def other_disk() -> Iterator[Path]:
    """A folder on a file system of its own."""
    folder = Path("/dev/shm")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        pytest.skip("needs a writable /dev/shm as a second file system")
    path = folder / f"instella-test-{os.getpid()}"
    path.mkdir()
    yield path
    subprocess.run(["rm", "-rf", str(path)], check=True)


def test_other_file_systems_are_copied_from_and_to(tmp_path: Path, other_disk: Path) -> None:
    if other_disk.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is on the same file system")
    store = Store(tmp_path / "store")
    entry = store.publish(write(other_disk / "new", b"abc"))
    assert not (other_disk / "new").exists()
    view = other_disk / "view"
    store.place(manifest_of(a=entry), view)
    assert (view / "a").read_bytes() == b"abc"
    assert stat.S_IMODE((view / "a").stat().st_mode) == 0o444
    assert list((store.root / "tmp").iterdir()) == []


def test_place_mends_and_clears(tmp_path: Path) -> None:
    store, view = Store(tmp_path / "store"), tmp_path / "view"
    one, two = publish(store, tmp_path, b"one"), publish(store, tmp_path, b"two")
    outside = write(tmp_path / "outside" / "keep", b"keep")
    write(view / "a", b"wrong")
    write(view / "stale" / "x", b"x")
    write(view / "deep", b"a file where a folder belongs")
    write(view / "manifest.json", b"{}")
    write(view / "c" / "was a folder", b"")
    (view / "link").symlink_to(outside.parent)
    store.place(manifest_of(a=one, deep__b=two, c=one), view)
    assert {path: file.read_bytes() for path, file in plain_files(view).items()} == {
        "a": b"one", "c": b"one", "deep/b": b"two", "manifest.json": b"{}",
    }  # fmt: skip
    assert (view / "a").samefile(store.object_path(one.sha256))
    assert not (view / "stale").exists() and outside.read_bytes() == b"keep"


def test_place_never_writes_through_a_link(tmp_path: Path) -> None:
    store, view = Store(tmp_path / "store"), tmp_path / "view"
    entry = publish(store, tmp_path, b"one")
    outside = write(tmp_path / "outside" / "b", b"keep")
    view.mkdir()
    (view / "deep").symlink_to(outside.parent)
    (view / "a").symlink_to(outside)
    store.place(manifest_of(a=entry, deep__b=entry), view)
    assert outside.read_bytes() == b"keep"
    assert (view / "deep" / "b").read_bytes() == b"one" and not (view / "deep").is_symlink()


def test_restore_takes_only_the_right_bytes(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    entry = Entry(sha256_bytes(b"abc"), 3)
    good, bad = write(tmp_path / "good", b"abc"), write(tmp_path / "bad", b"abX")
    (tmp_path / "link").symlink_to(good)
    assert not store.restore(bad, entry)
    assert not store.restore(tmp_path / "absent", entry)
    assert not store.restore(tmp_path / "link", entry)
    assert store.restore(good, entry) and good.exists()
    assert store.examine(entry) is None


def test_a_record_counts_only_under_its_own_key(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    made = manifest_of(a=Entry("0" * 64, 1))
    store.record("f" * 64, made)
    assert store.action("f" * 64) is None
    assert store.action("e" * 64) is None


@pytest.mark.parametrize("make", ["symlink", "fifo"])
def test_links_and_special_files_are_refused(tmp_path: Path, make: str) -> None:
    write(tmp_path / "out" / "ok", b"")
    if make == "symlink":
        (tmp_path / "out" / "odd").symlink_to("ok")
    else:
        os.mkfifo(tmp_path / "out" / "odd")
    with pytest.raises(ValueError, match="odd is a link or a special file"):
        plain_files(tmp_path / "out")


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")

    def die_holding() -> None:
        with store.lock("key"):
            os.kill(os.getpid(), 9)

    assert in_child(die_holding) == -9
    with store.lock("key", waiting=lambda: pytest.fail("the lock is still held")):
        pass
