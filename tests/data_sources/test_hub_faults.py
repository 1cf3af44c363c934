"""The fault table of downloads: nothing lost, nothing wrong accepted."""

import errno
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from instella.canonical import sha256_bytes
from instella.data.sources import hub_cache, hub_trouble
from instella.data.sources.hub_cache import Cache
from instella.data.sources.hub_download import fetch_repository
from instella.errors import KitError, VerificationError

from .hub_help import (
    data_of,
    files_of,
    lock_of,
    objects_of,
    quarantine_of,
    start_fetch,
    write_lock,
)
from .hub_server import Fault, Hub, http_date

SIZE = 300_000
AT = 123_456
NAME = "data/a.bin"


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        faults: of the answers, in order.
        error: what the message must hold; None: the fetch succeeds in the end.
        ranges: asked for by this fetch; None: any.
        then: asked for by a second fetch, without faults, after an error; None: any.
        aside: whether wrong bytes are set aside.
    """

    faults: tuple[Fault, ...]
    error: str | None = None
    ranges: tuple[str | None, ...] | None = None
    then: tuple[str | None, ...] | None = (None,)
    aside: bool = False


REST = f"bytes={AT}-"
ROWS = {
    "cut": Row((Fault("cut", at=AT),), ranges=(None, REST)),
    "cut twice": Row((Fault("cut", at=AT), Fault("cut", at=0)), ranges=(None, REST, REST)),
    "cut without a length": Row((Fault("unstated", at=AT),), ranges=(None, REST)),
    "cut again and again": Row(
        (Fault("cut", at=AT), Fault("cut", at=0, times=9)), error="cut off", then=(REST,)
    ),
    "reset": Row((Fault("reset", at=AT),), ranges=(None, REST)),
    "stalled": Row((Fault("stall", at=AT),), ranges=(None, REST)),
    "429": Row((Fault("status", 429),), ranges=(None, None)),
    "429 for an hour": Row(
        (Fault("status", 429, headers={"Retry_After": "3600"}),),
        error="asks to wait 3,600 s", ranges=(None,),
    ),
    "503 three times": Row((Fault("status", 503, times=3),), ranges=(None,) * 4),
    "503 for good": Row((Fault("status", 503, times=9),), error="HTTP 503", ranges=(None,) * 4),
    "500, 502, 504": Row(tuple(Fault("status", n) for n in (500, 502, 504)), ranges=(None,) * 4),
    "503 in mid-file": Row(
        (Fault("cut", at=AT), Fault("status", 503)), ranges=(None, REST, REST)
    ),
    "signed address ran out": Row((Fault("status", 403),), ranges=(None, None)),
    "404": Row((Fault("status", 404),), error="HTTP 404", ranges=(None,)),
    "wrong body of the right size": Row(
        (Fault("wrong", body=data_of(SIZE, 1)),), error="SHA-256 is", ranges=(None,), aside=True
    ),
    "too short a body": Row(
        (Fault("wrong", body=data_of(99)),), error="sends 99 bytes", ranges=(None,)
    ),
    "too long a body": Row(
        (Fault("wrong", body=data_of(SIZE + 9)),), error=f"sends {SIZE + 9} bytes", ranges=(None,)
    ),
    "a body without end": Row((Fault("endless"),), error="more than", ranges=(None,), then=None),
    "a server without ranges": Row(
        (Fault("cut", at=AT), Fault("unranged")), ranges=(None, REST)
    ),
    "the end of another file": Row(
        (Fault("cut", at=AT), Fault("wrong", body=data_of(SIZE, 1))),
        error="SHA-256 is", ranges=(None, REST), aside=True,
    ),
}  # fmt: skip


@pytest.fixture
def served(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.5)
    hub.files[NAME] = data_of(SIZE)
    yield hub


def get(hub: Hub, tmp_path: Path, name: str = "out", said: list[str] | None = None) -> Path:
    folder = tmp_path / name
    lines: list[str] = [] if said is None else said
    fetch_repository(lock_of(hub), folder, tmp_path / "downloads", lines.append)
    return folder


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_fault(row: Row, served: Hub, tmp_path: Path) -> None:
    served.faults[NAME] = [Fault(**vars(fault)) for fault in row.faults]
    downloads = tmp_path / "downloads"
    if row.error is None:
        assert files_of(get(served, tmp_path)) == served.files
    else:
        with pytest.raises(KitError, match=re.escape(row.error)) as caught:
            get(served, tmp_path)
        line = str(caught.value)
        assert "\n" not in line and NAME in line and "signature" not in line
        assert files_of(tmp_path / "out") == {}
        assert objects_of(downloads) == set()
    if row.ranges is not None:
        assert tuple(served.ranges(NAME)) == row.ranges
    aside = quarantine_of(downloads)
    assert len(aside) == row.aside
    assert sha256_bytes(served.files[NAME]) not in map(sha256_bytes, aside.values())
    # The trouble is over: only what is missing is asked for.
    served.faults.clear()
    served.log.clear()
    if row.error is not None:
        assert files_of(get(served, tmp_path, "then")) == served.files
        assert row.then is None or tuple(served.ranges(NAME)) == row.then
    assert files_of(get(served, tmp_path, "again")) == served.files
    assert objects_of(downloads) == {sha256_bytes(served.files[NAME])}
    assert not list((downloads / "hub" / "parts").iterdir())


@pytest.mark.parametrize("date", [False, True], ids=["seconds", "date"])
def test_retry_after_is_honoured(date: bool, served: Hub, tmp_path: Path) -> None:
    # A date has whole seconds: two ahead are at least one away.
    wait = http_date(time.time() + 2) if date else "1"
    served.faults[NAME] = [Fault("status", 429, headers={"Retry_After": wait})]
    started = time.monotonic()
    get(served, tmp_path)
    assert 0.9 < time.monotonic() - started < 5
    assert served.ranges(NAME) == [None, None]


def test_failures_are_forgiven_when_bytes_arrive(
    served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_trouble, "FORGIVEN_AFTER_BYTES", 20_000)
    served.faults[NAME] = [Fault("cut", at=20_000, times=12)]
    assert files_of(get(served, tmp_path)) == served.files
    assert served.ranges(NAME)[1:] == [f"bytes={n * 20_000}-" for n in range(1, 13)]


def test_the_hub_states_another_hash(served: Hub, tmp_path: Path) -> None:
    lock = lock_of(served)
    served.files[NAME] = data_of(SIZE, 1)
    with pytest.raises(VerificationError, match="the hub has SHA-256"):
        fetch_repository(lock, None, tmp_path / "downloads", lambda text: None)
    assert objects_of(tmp_path / "downloads") == set()


def test_what_was_kept_of_a_file_is_wrong(served: Hub, tmp_path: Path) -> None:
    """As after a power cut: the part ends in bytes that never arrived."""
    part = Cache(tmp_path / "downloads").part(sha256_bytes(served.files[NAME]))
    part.parent.mkdir(parents=True)
    part.write_bytes(served.files[NAME][: AT - 100] + b"\0" * 100)
    said: list[str] = []
    assert files_of(get(served, tmp_path, said=said)) == served.files
    assert served.ranges(NAME) == [REST, None]
    assert len(quarantine_of(tmp_path / "downloads")) == 1
    assert any("what was kept of it was wrong" in line for line in said)


def test_a_file_altered_on_the_disk(served: Hub, tmp_path: Path) -> None:
    get(served, tmp_path)
    path = Cache(tmp_path / "downloads").object(sha256_bytes(served.files[NAME]))
    path.write_bytes(data_of(SIZE, 1))
    served.log.clear()
    said: list[str] = []
    assert files_of(get(served, tmp_path, "again", said)) == served.files
    assert served.ranges(NAME) == [None]
    assert list(quarantine_of(tmp_path / "downloads").values()) == [data_of(SIZE, 1)]
    assert any("altered on this disk" in line for line in said)


def test_a_link_in_place_of_a_part_is_not_followed(served: Hub, tmp_path: Path) -> None:
    other = tmp_path / "a file of the user's"
    other.write_bytes(data_of(SIZE + 1, 3))
    part = Cache(tmp_path / "downloads").part(sha256_bytes(served.files[NAME]))
    part.parent.mkdir(parents=True)
    part.symlink_to(other)
    with pytest.raises(VerificationError, match="is a link, not a part of a file; remove it"):
        get(served, tmp_path)
    assert other.read_bytes() == data_of(SIZE + 1, 3)
    part.unlink()
    assert files_of(get(served, tmp_path)) == served.files


@pytest.mark.parametrize("fetched", [True, False], ids=["cached", "new"])
def test_the_disk_of_the_copy_is_full(
    fetched: bool, served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy fails at its first byte; the real disks are those of ``test_disk_full``."""
    if fetched:
        get(served, tmp_path, "first")

    def full(file: object, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(hub_cache, "write_all", full)
        with pytest.raises(KitError, match=r"a\.bin: the disk is full"):
            get(served, tmp_path)
    assert files_of(get(served, tmp_path, "then")) == served.files
    assert served.ranges(NAME) == [None]


def wait_for_part(downloads: Path, hub: Hub, size: int) -> None:
    part = Cache(downloads).part(sha256_bytes(hub.files[NAME]))
    for _ in range(600):
        if part.exists() and part.stat().st_size == size:
            return
        time.sleep(0.05)
    raise AssertionError(f"{part} does not reach {size} bytes")


def test_killed(hub: Hub, tmp_path: Path) -> None:
    hub.files[NAME] = data_of(SIZE)
    hub.files["b.bin"] = data_of(1000, 2)
    hub.faults[NAME] = [Fault("stall", at=AT)]
    lock = write_lock(tmp_path / "lock.json", lock_of(hub))
    process = start_fetch(lock, tmp_path / "downloads")
    wait_for_part(tmp_path / "downloads", hub, AT)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    hub.log.clear()
    assert files_of(get(hub, tmp_path)) == hub.files
    assert hub.ranges(NAME) == [REST]
    assert hub.ranges("b.bin") == []


def test_two_fetch_the_same_at_once(hub: Hub, tmp_path: Path) -> None:
    hub.files[NAME] = data_of(SIZE)
    hub.files["b.bin"] = data_of(1000, 2)
    # The first waits for the rest; the second finds it at work.
    hub.faults[NAME] = [Fault("stall", at=AT)]
    lock = write_lock(tmp_path / "lock.json", lock_of(hub))
    first = start_fetch(lock, tmp_path / "downloads")
    wait_for_part(tmp_path / "downloads", hub, AT)
    second = start_fetch(lock, tmp_path / "downloads")
    time.sleep(0.3)
    hub.closing.set()
    for process in (first, second):
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    assert hub.ranges(NAME) == [None, REST]
    assert len(hub.ranges("b.bin")) == 1
    assert objects_of(tmp_path / "downloads") == {sha256_bytes(d) for d in hub.files.values()}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 200 kB; only root can have one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("a disk of our own takes root; the limit on file sizes stands for it")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_disk_full(hub: Hub, small_disk: Path) -> None:
    hub.files[NAME] = data_of(SIZE)
    lock = lock_of(hub)
    with pytest.raises(KitError, match="the disk is full") as caught:
        fetch_repository(lock, None, small_disk, lambda text: None)
    assert "\n" not in str(caught.value) and "run it again" in str(caught.value)
    kept = Cache(small_disk).part(sha256_bytes(hub.files[NAME])).stat().st_size
    assert 0 < kept <= 200 * 1024
    command = ["mount", "-o", "remount,size=2m", str(small_disk)]
    subprocess.run(command, check=True)
    hub.log.clear()
    fetch_repository(lock, None, small_disk, lambda text: None)
    assert hub.ranges(NAME) == [f"bytes={kept}-"]
    assert objects_of(small_disk) == {sha256_bytes(hub.files[NAME])}


def test_no_file_may_grow_further(hub: Hub, tmp_path: Path) -> None:
    """As ``test_disk_full``, for those who may not mount a disk."""
    hub.files[NAME] = data_of(SIZE)
    lock = write_lock(tmp_path / "lock.json", lock_of(hub))
    process = start_fetch(lock, tmp_path / "downloads", limit=200_000)
    _, errors = process.communicate()
    assert process.returncode == 1 and "the disk is full" in errors
    assert len(errors.splitlines()) == 1
    hub.log.clear()
    assert files_of(get(hub, tmp_path)) == hub.files
    assert hub.ranges(NAME) == ["bytes=200000-"]
