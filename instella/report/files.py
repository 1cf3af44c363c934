"""Files of a run, read as untrusted input: bounded, and compared with their manifest first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from instella.artifacts.manifest import Manifest
from instella.artifacts.store import examine_file
from instella.canonical import read_json, read_jsonl
from instella.errors import VerificationError

MAX_BYTES = 256 << 20
STEPS = "steps.jsonl"

Row = dict[str, Any]


@dataclass
class Files:
    """The files that the manifests of one run list.

    Attributes:
        results: folder with a folder for each stage.
        manifests: by stage, in the order in which they are shown.
        faults: one line for each file that cannot be shown; the page tells them.
    """

    results: Path
    manifests: Mapping[str, Manifest]
    faults: list[str] = field(default_factory=list)

    def has(self, stage: str, path: str) -> bool:
        """Whether the manifest of a stage lists a file."""
        return stage in self.manifests and path in self.manifests[stage].files

    def json(self, stage: str, path: str) -> Any:
        """A JSON file; None when the stage has none or it is at fault."""
        return self._read(stage, path, read_json)

    def rows(self, stage: str, path: str) -> list[Row]:
        """A JSON-lines file; no rows when the stage has none or it is at fault."""
        found: list[Row] | None = self._read(stage, path, read_jsonl)
        return found or []

    def is_sound(self, stage: str, path: str) -> bool:
        """Whether a file's bytes are those of the manifest; a fault is noted."""
        entry = self.manifests[stage].files[path]
        if entry.size > MAX_BYTES:
            return self._note(stage, path, f"larger than {MAX_BYTES} bytes")
        found = examine_file(self.results / stage / path, entry)
        if found is not None:
            return self._note(stage, path, f"expected sha256 {entry.sha256}, found {found}")
        return True

    def _read(self, stage: str, path: str, reader: Any) -> Any:
        if not self.has(stage, path) or not self.is_sound(stage, path):
            return None
        try:
            return reader(self.results / stage / path)
        except VerificationError:
            self._note(stage, path, "not the JSON that the kit writes")
            return None

    def _note(self, stage: str, path: str, what: str) -> bool:
        self.faults.append(f"{stage}: {path}: {what}, so it is not shown; audit the run")
        return False
