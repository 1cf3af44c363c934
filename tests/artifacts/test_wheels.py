"""The byte-deciding packages are the wheels of the lock, file by file."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from instella import wheels
from instella.artifacts.identity import lock_file
from instella.errors import BadUse, VerificationError
from instella.wheels import assert_wheels, record_digest

FILES = {"toy/__init__.py": b"one = 1\n", "toy/lib.so.1": b"\x7fELF", "toy/data.txt": b"words\n"}
HEX = "0" * 64


def listed(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def make_wheel(folder: Path) -> Path:
    path = folder / "toy-1.0-py3-none-any.whl"
    record = "".join(listed(name, data) for name, data in FILES.items())
    record += listed("toy-1.0.data/scripts/toy", b"#!python\n") + "toy-1.0.dist-info/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
        archive.writestr("toy-1.0.dist-info/RECORD", record)
    return path


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a locked and installed package ``toy``; its ``run.lock``."""
    wheel = make_wheel(tmp_path)
    lock = tmp_path / "run.lock"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock.write_text(
        f"other==2 \\\n    --hash=sha256:{HEX}\ntoy==1.0 \\\n    --hash=sha256:{digest}\n"
    )
    monkeypatch.setattr(wheels, "BYTE_PACKAGES", ("toy",))
    wheels.write_bytes_lock(lock, tmp_path)
    site = tmp_path / "site"
    information = site / "toy-1.0.dist-info"
    information.mkdir(parents=True)
    for name, data in FILES.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_bytes(data)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    record = "".join(listed(name, data) for name, data in reversed(FILES.items()))
    own = "toy-1.0.dist-info/INSTALLER,sha256=x,4\ntoy/__pycache__/__init__.cpython-311.pyc,,\n"
    (information / "RECORD").write_text(f"../../../bin/toy,sha256=y,3\n{own}{record}")
    monkeypatch.syspath_prepend(str(site))
    time.sleep(0.05)  # older than a tick of the file system's clock
    return lock


def test_what_is_installed_is_what_is_locked(tmp_path: Path) -> None:
    """The real packages; the second check reads no file and is quick."""
    assert_wheels(lock_file(), tmp_path)
    stamps = list(tmp_path.iterdir())
    assert len(stamps) == 1 and stamps[0].stat().st_size == 0
    best = min(_cpu_seconds(tmp_path) for _ in range(3))
    assert best < 0.3  # about 0.06 on an idle machine
    assert list(tmp_path.iterdir()) == stamps


def _cpu_seconds(stamps: Path) -> float:
    before = time.process_time()
    assert_wheels(lock_file(), stamps)
    return time.process_time() - before


def test_the_installers_own_lines_do_not_count(toy: Path) -> None:
    assert_wheels(toy, toy.parent / "stamps")
    assert len(list((toy.parent / "stamps").iterdir())) == 1


@pytest.mark.parametrize("name", ["toy/__init__.py", "toy/lib.so.1"])
def test_an_edited_file_is_named_even_with_its_old_time(toy: Path, name: str) -> None:
    assert_wheels(toy, toy.parent / "stamps")
    path = toy.parent / "site" / name
    times = path.stat()
    path.write_bytes(b"x" * len(FILES[name]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(VerificationError, match=f"{name}: not what the wheel of toy") as caught:
        assert_wheels(toy, toy.parent / "stamps")
    assert caught.value.exit_code == 4
    assert "./kit setup" in str(caught.value) and "\n" not in str(caught.value)
    path.write_bytes(FILES[name])
    assert_wheels(toy, toy.parent / "stamps")


def test_a_missing_file_is_named(toy: Path) -> None:
    (toy.parent / "site" / "toy" / "lib.so.1").unlink()
    with pytest.raises(VerificationError, match=r"lib\.so\.1: missing from toy"):
        assert_wheels(toy, toy.parent / "stamps")


def test_a_missing_package_is_named(toy: Path) -> None:
    shutil.rmtree(toy.parent / "site" / "toy-1.0.dist-info")
    with pytest.raises(VerificationError, match=r"toy: expected version 1\.0 .*, found nothing"):
        assert_wheels(toy, toy.parent / "stamps")


def test_another_build_of_the_same_version_is_refused(toy: Path) -> None:
    path = toy.parent / "site" / "toy" / "__init__.py"
    path.write_bytes(b"two = 2\n")
    record = toy.parent / "site" / "toy-1.0.dist-info" / "RECORD"
    record.write_text(listed("toy/__init__.py", b"two = 2\n"))
    with pytest.raises(
        VerificationError, match=r"toy: expected the wheel .* another build of 1\.0"
    ):
        assert_wheels(toy, toy.parent / "stamps")


def test_a_package_in_the_way_is_refused(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = toy.parent / "other" / "toy"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(other.parent))
    with pytest.raises(VerificationError, match=r"other/toy/__init__\.py: imported in place"):
        assert_wheels(toy, toy.parent / "stamps")


def test_without_a_place_for_stamps_every_file_is_read(toy: Path) -> None:
    blocked = toy.parent / "file"
    blocked.write_text("")
    assert_wheels(toy, blocked / "stamps")
    (toy.parent / "site" / "toy" / "lib.so.1").write_bytes(b"edit")
    with pytest.raises(VerificationError, match="lib"):
        assert_wheels(toy, blocked / "stamps")


def test_the_two_locks_belong_together(toy: Path) -> None:
    good = toy.read_text()
    toy.write_text(good.replace("toy==1.0", "toy==1.1"))
    with pytest.raises(VerificationError, match=r"bytes\.lock: toy is not the wheel of run\.lock"):
        assert_wheels(toy, toy.parent / "stamps")
    toy.write_text(good.split("toy==")[0])
    with pytest.raises(VerificationError, match="toy is not locked"):
        assert_wheels(toy, toy.parent / "stamps")
    toy.write_text(good)
    toy.with_name("bytes.lock").unlink()
    with pytest.raises(VerificationError, match="toy is not the wheel"):
        assert_wheels(toy, toy.parent / "stamps")
    (toy.parent / "toy-1.0-py3-none-any.whl").unlink()
    with pytest.raises(BadUse, match="needs the one wheel of toy"):
        wheels.write_bytes_lock(toy, toy.parent)


def test_locked_names_and_extras(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    lock.write_text(f"Hub_x[cli] == 0.1 ; python_version > '3' \\\n    --hash=sha256:{HEX}\n")
    assert wheels.locked_hashes(lock) == {"hub-x": ("0.1", {HEX})}


def test_moved_files_of_a_wheel_count_where_they_go() -> None:
    assert record_digest("a-1.data/purelib/a/b.py,sha256=q,1\n") == record_digest(
        "a/b.py,sha256=q,1\n../../etc/x,sha256=z,3\na-1.dist-info/REQUESTED,,\n"
    )


def test_an_old_cpu_and_a_foreign_torch_are_one_line_of_the_command(tmp_path: Path) -> None:
    """Through the command line: exit 2 and exit 4, one line, before anything is computed."""
    project = lock_file().parents[1]
    script = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from instella import cli, numerics, wheels\n"
        "what, value = json.loads(sys.argv.pop(1))\n"
        "if what == 'cpu':\n"
        "    defaults = numerics.apply_environment.__defaults__\n"
        "    numerics.apply_environment.__defaults__ = (defaults[0], Path(value))\n"
        "else:\n"
        "    sys.path.insert(0, value)\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags : fpu sse2 avx\n")
    foreign = tmp_path / "site" / "numpy-9.dist-info"
    foreign.mkdir(parents=True)
    (foreign / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 9\n")
    (foreign / "RECORD").write_text("numpy/__init__.py,sha256=x,0\n")
    (tmp_path / "site" / "numpy").mkdir()
    (tmp_path / "site" / "numpy" / "__init__.py").write_text("")
    cases = (
        ("cpu", cpuinfo, 2, "lacks avx2 and fma"),
        ("path", foreign.parent, 4, "numpy: expected"),
    )
    for what, value, code, text in cases:
        done = subprocess.run(
            [
                sys.executable, "-c", script, json.dumps([what, str(value)]), "stage", "source_sums",
                "--recipe", "recipes/nano.yaml", "--store", f"{tmp_path}/store",
                "--results", f"{tmp_path}/results",
            ],
            cwd=project, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert text in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
