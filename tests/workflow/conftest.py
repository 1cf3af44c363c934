"""A copy of the tree whose stages write a line each, so that a run takes seconds."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("Snakefile", "config.yaml", "workflow", "instella", "recipes", "requirements")

STAGE = '''"""A stage that only names itself and what it read."""

from instella.canonical import write_json


def run(job):
    write_json(job.output / "made.json", {"stage": job.stage, "inputs": sorted(job.inputs)})
    (job.output / "table.md").write_text("| a table |\\n")
'''


@dataclass
class Tree:
    """A project folder."""

    folder: Path

    def snakemake(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run Snakemake there; stdout and stderr are captured together."""
        environment = {**os.environ, "PYTHONPATH": "", "LC_ALL": "C.UTF-8"}
        command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
        )


def copy_tree(folder: Path) -> Tree:
    """The parts of the project that a run reads."""
    folder.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / part, ignore=ignored)
        else:
            shutil.copy(source, folder / part)
    return Tree(folder)


@pytest.fixture(scope="session")
def real_tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The project as it is, to be read only: dry runs leave a cache."""
    return copy_tree(tmp_path_factory.mktemp("real") / "kit")


@pytest.fixture(scope="session")
def heldout_tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A tree with quick stages, run as far as the held-out items."""
    tree = copy_tree(tmp_path_factory.mktemp("run") / "Kölner Kit")
    for path in (tree.folder / "instella/stages").glob("*.py"):
        if path.name != "__init__.py":
            path.write_text(STAGE, encoding="utf-8")
    done = tree.snakemake(HELDOUT)
    assert done.returncode == 0, done.stdout
    return tree


HELDOUT = "results/tiny/heldout/manifest.json"
