"""What stands in the way of a run is told in one line, before anything runs."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from instella.artifacts.places import check_rights, check_shape
from instella.artifacts.store import Store
from instella.errors import KitError

STAGES = ("sft", "dpo")


def a_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")


def a_folder(path: Path) -> None:
    path.mkdir(parents=True)


def a_dangling_link(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("nowhere")


def a_pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize(
    "name", [".", "tiny", "tiny/dpo", "tiny/logs", "tiny/benchmarks", "tiny/journal"]
)
@pytest.mark.parametrize("make", [a_file, a_dangling_link, a_pipe])
def test_in_place_of_a_folder(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    results = tmp_path / "results"
    make(results / name)
    with pytest.raises(KitError, match="needed") as raised:
        check_shape(results / "tiny", STAGES)
    assert str(raised.value).startswith(f"{results / name}: a ")
    assert "stands where a folder is needed; " in str(raised.value)


@pytest.mark.parametrize(
    "name",
    ["table.md", "root", "report.html", "sft/manifest.json", "logs/sft.log", "benchmarks/dpo.tsv"],
)
@pytest.mark.parametrize("make", [a_folder, a_dangling_link, a_pipe])
def test_in_place_of_a_file(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    make(tmp_path / "tiny" / name)
    with pytest.raises(KitError, match="stands where a file is needed") as raised:
        check_shape(tmp_path / "tiny", STAGES)
    assert str(raised.value).startswith(f"{tmp_path / 'tiny' / name}: a ")


def test_what_is_right_or_missing_is_let_through(tmp_path: Path) -> None:
    check_shape(tmp_path / "tiny", STAGES)
    a_file(tmp_path / "tiny" / "root")
    a_folder(tmp_path / "elsewhere")
    (tmp_path / "tiny" / "sft").symlink_to(tmp_path / "elsewhere")
    check_shape(tmp_path / "tiny", STAGES)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Nobody may make a folder in /sys, not even root."""
    with pytest.raises(KitError, match=r"^/sys/results/tiny: cannot be made \(.*\); change its"):
        check_rights(Path("/sys/results/tiny"), Store(tmp_path / "store"), STAGES)


def test_a_folder_without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks the kernel; root may write everywhere, so its answer is told here for one folder."""
    closed, asked = tmp_path / "tiny" / "dpo", os.access
    closed.mkdir(parents=True)
    store = Store(tmp_path / "deep" / "store")
    check_rights(tmp_path / "tiny", store, STAGES)

    def access(path: Path, mode: int) -> bool:
        return asked(path, mode) and (mode == os.F_OK or path != closed)

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(KitError, match="this user may not write here; change its owner") as raised:
        check_rights(tmp_path / "tiny", store, STAGES)
    assert str(raised.value).startswith(f"{closed}: ")


@pytest.mark.skipif(os.getuid() != 0, reason="takes another user's number, as root can")
def test_folders_above_may_be_closed_to_the_user(tmp_path: Path) -> None:
    work = tmp_path / "closed" / "kit"
    work.mkdir(parents=True)
    os.chmod(work.parent, 0o700)
    os.chown(work, 65534, 65534)
    child = os.fork()
    if child == 0:
        try:
            os.chdir(work)
            os.setgid(65534)
            os.setuid(65534)
            check_rights(Path("results/nano"), Store(Path("store")), ["sft"])
        except BaseException as error:
            os.write(2, f"{error}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
