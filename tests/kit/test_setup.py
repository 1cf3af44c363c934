"""Setting up: what is found, what is refused in one line, and what a second call does."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import Kit

RUN_LOCKS = ["requirements/build.lock", "requirements/run.lock"]


def one_line(err: str) -> str:
    """The only line on stderr that starts a complaint."""
    lines = [line for line in err.splitlines() if "setting up" not in line]
    assert len(lines) == 1 and lines[0].startswith("kit: "), err
    return lines[0]


def test_no_python(kit: Kit) -> None:
    code, _, err = kit.run("setup")
    assert code == 1
    assert "there is no Python" in one_line(err) and "apt install python3.11" in err


@pytest.mark.parametrize("version", ["3.8", "3.10", "3.13"])
def test_another_python(kit: Kit, version: str) -> None:
    kit.add_python("python3", version)
    code, _, err = kit.run("setup")
    assert code == 1
    assert f"python3 is {version}" in one_line(err)
    assert not (kit.folder / ".venv").exists()


def test_python3_may_be_the_right_one(kit: Kit) -> None:
    kit.add_python("python3")
    assert kit.run("setup")[0] == 0


def test_a_broken_launcher_is_passed_over(kit: Kit) -> None:
    kit.add_python("python3")
    (kit.bin / "python3.11").write_text("#!/bin/sh\necho 'not installed' >&2\nexit 127\n")
    (kit.bin / "python3.11").chmod(0o755)
    assert kit.run("setup")[0] == 0


def test_python_without_venv(kit: Kit) -> None:
    kit.add_python(venv=1)
    code, _, err = kit.run("setup")
    assert code == 1
    assert "apt install python3.11-venv" in one_line(err)


def test_full_disk(kit: Kit) -> None:
    kit.add_python()
    (kit.bin / "df").unlink()
    (kit.bin / "df").write_text("#!/bin/sh\necho head\necho '/dev/x 9 9 1024000 9% /'\n")
    (kit.bin / "df").chmod(0o755)
    code, _, err = kit.run("setup")
    assert code == 1
    assert "1000 MB are free" in one_line(err)


@pytest.mark.parametrize(
    ("pip_says", "kit_says"),
    [
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", "CPU wheel index"),
        ("WARNING: Retrying after NewConnectionError", "cannot reach a package index"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE", "requirements/build.lock"),
        ("ERROR: [Errno 28] No space left on device", "disk is full"),
        ("ERROR: something else", "ERROR: something else"),
    ],
)
def test_pip_fails(kit: Kit, pip_says: str, kit_says: str) -> None:
    kit.add_python(pip=f"echo '{pip_says}'; exit 1")
    code, _, err = kit.run("setup")
    assert code == 1
    assert kit_says in one_line(err)
    assert kit.run("setup")[0] == 1, "a failed set-up must not count as done"


def test_second_call_installs_nothing(kit: Kit) -> None:
    kit.add_python()
    assert kit.run("setup")[0] == 0
    assert kit.installs() == RUN_LOCKS
    code, _, err = kit.run("setup")
    assert (code, err) == (0, "")
    assert kit.installs() == RUN_LOCKS


def test_changed_lock_sets_up_anew(kit: Kit) -> None:
    kit.add_python()
    kit.run("setup")
    (kit.folder / ".venv/left-over").touch()
    with (kit.folder / "requirements/run.lock").open("a") as file:
        file.write("new==1 --hash=sha256:00\n")
    kit.run("setup")
    assert kit.installs() == RUN_LOCKS * 2
    assert not (kit.folder / ".venv/left-over").exists()


def test_test_extras_come_on_top(kit: Kit) -> None:
    kit.add_python()
    kit.run("setup")
    assert kit.run("test", "-q")[0] == 5, "pytest's exit code"
    assert kit.installs() == [*RUN_LOCKS, "requirements/test.lock"]
    assert kit.calls()[-1] == "-m pytest -q"


def test_an_environment_of_its_own(kit: Kit) -> None:
    kit.add_python()
    locks = kit.folder / "requirements/environments"
    locks.mkdir(exist_ok=True)
    (locks / "engine.lock").write_text("one==1 --hash=sha256:00\n")
    code, _, err = kit.run("setup", "engine")
    assert code == 0, err
    own = ["requirements/build.lock", "requirements/environments/engine.lock"]
    assert kit.installs() == [*RUN_LOCKS, *own]
    pth = kit.folder / ".venvs/engine/lib/python3.11/site-packages/instella.pth"
    assert (pth.parent / pth.read_text().strip()).resolve() == kit.folder.resolve()
    assert kit.run("setup", "engine", "test")[0] == 0
    assert kit.installs() == [*RUN_LOCKS, *own, "requirements/test.lock"]


def test_a_failed_environment_is_made_anew(kit: Kit) -> None:
    kit.add_python()
    kit.run("setup")
    locks = kit.folder / "requirements/environments"
    locks.mkdir(exist_ok=True)
    (locks / "engine.lock").write_text("one==1 --hash=sha256:00\n")
    kit.add_python(pip="echo ERROR: no; exit 1")
    code, _, err = kit.run("setup", "engine")
    assert (code, err.splitlines()[-1]) == (1, "kit: pip failed: ERROR: no; see .kit/setup.log")
    kit.add_python()
    code, _, err = kit.run("setup", "engine")
    assert code == 0, err


@pytest.mark.parametrize("name", ["nothing", "run", "build", "../kit", "environments/engine", "."])
def test_nothing_else_is_set_up(kit: Kit, name: str) -> None:
    kit.add_python()
    kit.run("setup")
    code, out, err = kit.run("setup", name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "to set up" in err


def test_killed_set_up_starts_again(kit: Kit) -> None:
    kit.add_python(pip="echo $PPID >pid; sleep 30")
    process = kit.start("setup")
    pid = kit.folder / "pid"
    deadline = time.monotonic() + 20
    while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    _end_sleep(kit)
    process.communicate(timeout=20)
    kit.add_python()
    code, _, err = kit.run("setup")
    assert code == 0, err
    assert (kit.folder / ".venv/run.stamp").exists()


def _end_sleep(kit: Kit) -> None:
    """End the stand-in pip, which holds the set-up lock as the real one would."""
    for folder in os.listdir("/proc"):
        if not folder.isdigit():
            continue
        try:
            inside = os.readlink(f"/proc/{folder}/cwd") == str(kit.folder)
        except OSError:
            continue
        if inside:
            os.kill(int(folder), signal.SIGTERM)


def test_two_at_once_install_once(kit: Kit) -> None:
    kit.add_python(pip="sleep 1")
    processes = [kit.start("setup") for _ in range(2)]
    results = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], results
    assert kit.installs() == RUN_LOCKS
    assert any("waiting for another set-up" in err for _, err in results)


def test_launcher_of_the_command_line(kit: Kit) -> None:
    kit.add_python()
    kit.run("setup")
    assert os.access(kit.folder / ".venv/bin/instella", os.X_OK)
    pth = kit.folder / ".venv/lib/python3.11/site-packages/instella.pth"
    assert (pth.parent / pth.read_text().strip()).resolve() == kit.folder.resolve()


def test_launcher_takes_no_module_from_elsewhere(kit: Kit, tmp_path: Path) -> None:
    kit.add_python()
    kit.run("setup")
    link = tmp_path / "link to instella"
    link.symlink_to(kit.folder / ".venv/bin/instella")
    subprocess.run([link, "stages"], cwd=kit.folder, check=True)
    assert kit.calls()[-1] == "-I -X utf8 -m instella stages"


def test_link_to_kit_touches_nothing_beside_the_link(kit: Kit, tmp_path: Path) -> None:
    kit.add_python()
    elsewhere = tmp_path / "home"
    (elsewhere / ".venv").mkdir(parents=True)
    (elsewhere / "kit").symlink_to(kit.folder / "kit")
    link = Kit(elsewhere, kit.bin)
    assert link.run("setup")[0] == 0
    assert kit.installs() == RUN_LOCKS
    assert sorted(path.name for path in elsewhere.rglob("*")) == [".venv", "kit"]


def test_kit_alone_is_refused(kit: Kit) -> None:
    kit.add_python()
    shutil.rmtree(kit.folder / "requirements")
    (kit.folder / ".venv").mkdir()
    code, _, err = kit.run("setup")
    assert (code, err.count("\n")) == (1, 1)
    assert "no requirements/run.lock" in err
    assert (kit.folder / ".venv").is_dir()
