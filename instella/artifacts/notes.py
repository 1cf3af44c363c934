"""What a stage tells of one execution beside its artifact: figures that no hash covers.

A stage leaves plain files in ``FOLDER`` of its scratch; whoever runs the stage keeps them with
the journal, under the identity that was computed, also when the stage fails.
"""

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes, read_jsonl

FOLDER = "notes"
HEALTH = "health.jsonl"
"""Figures of GRPO that no artifact has, one line a step."""
SPEED = "speed.jsonl"
"""Time and memory of training, one line a step."""


class NoteLog:
    """One line a step in the notes of a job; written as it is made, also when the stage fails.

    Args:
        scratch: of the job.
        name: of the file.
        steps: steps that a resumed stage has done; what was logged beyond them is dropped.
    """

    def __init__(self, scratch: Path, name: str, steps: int) -> None:
        self._path = scratch / FOLDER / name
        self._path.parent.mkdir(exist_ok=True)
        kept = []
        if self._path.is_file():
            # A kill may have cut the last line, which then is of a step that is done again.
            whole = self._path.read_bytes().rpartition(b"\n")
            self._path.write_bytes(whole[0] + whole[1])
            kept = [line for line in read_jsonl(self._path) if line["step"] <= steps]
        self._path.write_bytes(b"".join(json_bytes(line) for line in kept))

    def write(self, line: Mapping[str, Any]) -> None:
        """Add one line: ``step`` and figures. What is no number has no JSON form and is left out."""
        told = {name: value for name, value in line.items() if math.isfinite(value)}
        with self._path.open("ab") as file:
            file.write(json_bytes(told))


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
