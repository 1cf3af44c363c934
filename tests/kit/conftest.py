"""A folder with the real ``kit`` and stand-ins for the programs that it finds in PATH."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = (
    "awk", "cat", "chmod", "df", "dirname", "env", "flock", "grep", "ls", "mkdir", "readlink",
    "rm", "sed", "sh", "sha256sum", "tail", "tr", "uname", "cp", "sleep",
)  # fmt: skip

# Answers kit's questions like a Python {version}; keeps a list of what it was asked to do.
PYTHON = """#!/bin/sh
printf '%s\\n' "$*" >>calls
case "$*" in
    *version_info*) echo {version} ;;
    *ensurepip*) exit {venv} ;;
    *sysconfig*) echo . ;;
    '-m venv '*)
        mkdir -p "$3/bin" "$3/lib/python3.11/site-packages"
        cp "$0" "$3/bin/python"
        ;;
    '-m pip install '*)
        {pip}
        ;;
    '-m snakemake '*) env >environment; {snakemake} ;;
    '-m pytest'*) exit 5 ;;
esac
"""


@dataclass(frozen=True)
class Kit:
    """The folder, and the folder that is the whole PATH."""

    folder: Path
    bin: Path

    def add_python(
        self,
        name: str = "python3.11",
        version: str = "3.11",
        venv: int = 0,
        pip: str = ":",
        snakemake: str = "exit 7",
    ) -> None:
        """Put a stand-in into PATH: ``pip`` and ``snakemake`` are shell text they run."""
        text = PYTHON.format(version=version, venv=venv, pip=pip, snakemake=snakemake)
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        """Start kit."""
        return subprocess.Popen(
            ["/bin/sh", str(self.folder / "kit"), *arguments],
            env={"PATH": str(self.bin), **environment},
            cwd="/",
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of kit."""
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def calls(self) -> list[str]:
        """What the stand-ins were asked to do, in order."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def installs(self) -> list[str]:
        """Lock files that were installed, in order."""
        calls = [call for call in self.calls() if call.startswith("-m pip install")]
        return [word for call in calls for word in call.split() if word.endswith(".lock")]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    folder, tools = tmp_path / "Kölner Kit", tmp_path / "bin"
    folder.mkdir()
    tools.mkdir()
    shutil.copy(ROOT / "kit", folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    for name in TOOLS:
        target = shutil.which(name) or shutil.which("true")
        assert target is not None
        os.symlink(target, tools / name)
    return Kit(folder, tools)
