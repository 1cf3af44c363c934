"""What version control says of the tree: its commit, and files that are not as committed.

An identity holds the hash of the code, committed or not, so a changed tree is no fault of
an artifact. But nobody else can fetch such a tree, so it is named.
"""

import os
import shutil
import subprocess
from pathlib import Path

WATCHED = ("instella", "requirements", "recipes", "workflow", "Snakefile", "kit")
SHOWN = 5
# Nothing that the tree's own configuration names is started.
_GIT = (
    "git",
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
)


def tree_notes(project: Path) -> list[str]:
    """Notes for the audit's reader; none for a clean tree."""
    if not (project / ".git").exists():
        return ["the tree is not under version control: its code is known by its hash alone"]
    if shutil.which("git") is None:
        return ["git is not installed: whether the tree is a committed one is not known"]
    text = _git(project, "status", "--porcelain", "--untracked-files=all", "--", *WATCHED)
    if text is None:
        return ["git cannot read the tree: whether it is a committed one is not known"]
    changed = [line[3:] for line in text.splitlines() if line]
    if not changed:
        return []
    more = len(changed) - SHOWN
    names = ", ".join(changed[:SHOWN]) + (f" and {more} more" if more > 0 else "")
    commit = (_git(project, "rev-parse", "HEAD") or "no commit").strip()
    return [f"dirty tree: not as in commit {commit[:16]}: {names}"]


def _git(project: Path, *arguments: str) -> str | None:
    environment = {**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(
        [*_GIT, *arguments], cwd=project, env=environment, capture_output=True, text=True,
        errors="replace", stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return done.stdout if done.returncode == 0 else None
