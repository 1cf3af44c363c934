"""Formatting, linting and types: what a reader may take for granted."""

import subprocess
import sys

from .conftest import ROOT, Tree


def check(*command: str) -> None:
    """Run a module's command in the project; its output is the failure's text."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, text=True, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing() -> None:
    check("ruff", "check", "--no-cache", ".")


def test_python_is_formatted() -> None:
    check("ruff", "format", "--no-cache", "--check", ".")


def test_snakemake_files_are_formatted() -> None:
    check("snakefmt", "--check", "Snakefile", "workflow")


def test_snakemake_lint_finds_nothing(real_tree: Tree) -> None:
    done = real_tree.snakemake("--lint")
    assert done.returncode == 0, done.stdout


def test_types_are_right() -> None:
    check("mypy")
