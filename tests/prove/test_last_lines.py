"""What a test run says at its end about the machine and the recorded roots."""

import shutil
import subprocess
import sys
from pathlib import Path

from instella.artifacts.journal import host_facts
from instella.prove.copies import PROJECT

TEST = """
def test_of_one_recipe(record_property):
    record_property("root of nano", "NOT EQUAL to")
    assert False
"""


def test_last_lines_tell_cpu_library_and_roots(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "recipes").mkdir()
    shutil.copy(PROJECT / "tests" / "conftest.py", tmp_path / "tests")
    for name in ("nano", "tiny"):
        shutil.copy(PROJECT / "recipes" / f"{name}.root", tmp_path / "recipes")
    (tmp_path / "tests" / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        command, cwd=PROJECT, text=True, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("same bytes: ")]
    facts = host_facts()
    start = (tmp_path / "recipes" / "nano.root").read_text()[:16]
    assert line == (
        f"same bytes: CPU {facts['cpu']}; {facts['libc']}; nano NOT EQUAL to recorded {start}; "
        "tiny not run"
    )
