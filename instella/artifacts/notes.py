"""What a stage tells of one execution beside its artifact: figures that no hash covers.

A stage leaves plain files in ``FOLDER`` of its scratch; whoever runs the stage keeps them with
the journal, under the identity that was computed, also when the stage fails.
"""

import shutil
from pathlib import Path

FOLDER = "notes"
HEALTH = "health.jsonl"
"""Figures of GRPO that no artifact has, one line a step."""


def keep_notes(scratch: Path, target: Path) -> None:
    """Copy the notes in a job's scratch, in place of those of an earlier attempt."""
    source = scratch / FOLDER
    if not source.is_dir():
        return
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        draft = target / f".{file.name}"
        shutil.copyfile(file, draft, follow_symlinks=False)
        draft.replace(target / file.name)
