"""The inputs of one execution: verified, mended where they can be, placed, found untouched."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from instella.artifacts.lineage import Owner
from instella.artifacts.manifest import Entry, Manifest
from instella.artifacts.repair import Repair
from instella.artifacts.stamps import same_file
from instella.artifacts.workspace import Workspace, input_manifests
from instella.errors import VerificationError
from instella.progress import Reporter
from instella.recipe.graph import Stage
from instella.recipe.imports import ancestors


@dataclass(frozen=True)
class Placed:
    """One file of an input: the stage that made it, and its state when handed over."""

    stage: str
    entry: Entry
    file: Path
    state: os.stat_result


class Inputs:
    """What a stage reads.

    Args:
        stage: that reads them.
        graph: the whole graph, to name who answers for a bad input.
        workspace: where.
        report: progress lines.

    Attributes:
        manifests: role to manifest.
        verified: objects found good, with the state of the file in which they were.
        repair: what is done about those that are not.

    Raises:
        Incomplete: an input has no manifest yet.
    """

    def __init__(
        self, stage: Stage, graph: Mapping[str, Stage], workspace: Workspace, report: Reporter
    ) -> None:
        self._stage = stage
        self._graph = graph
        self._store = workspace.store
        self._report = report
        self.manifests = input_manifests(stage, workspace)
        self.verified: dict[Path, tuple[Entry, os.stat_result]] = {}
        self.repair = Repair(stage.name, graph, workspace)

    def note(self, entry: Entry) -> None:
        """Remember a stored object as verified, in the state its file has now."""
        stored = self._store.object_path(entry.sha256)
        self.verified[stored] = (entry, stored.lstat())

    def examine(self, manifest: Manifest) -> dict[Entry, str]:
        """Rehash a manifest's objects: the bad ones with what was found."""
        states = {}
        for entry in manifest.files.values():
            path = self._store.object_path(entry.sha256)
            if path.is_file():
                states[path] = (entry, path.lstat())
        bad = self._store.examine_all(manifest.files.values())
        good = {path: state for path, state in states.items() if state[0] not in bad}
        self.verified.update(good)
        return bad

    def verify(self) -> None:
        """Rehash all inputs.

        Raises:
            VerificationError: one is bad and no view has it; it is set aside.
        """
        for role, manifest in self.manifests.items():
            for entry, found in self.examine(manifest).items():
                if not self.mend(entry):
                    raise self._give_up(self._stage.inputs[role], entry, found)

    def place(self, folder: Path) -> list[Placed]:
        """Link or copy the inputs into ``folder``, each under its role."""
        placed = []
        for role, manifest in self.manifests.items():
            self._store.place(manifest, folder / role)
            for path, entry in manifest.files.items():
                file = folder / role / path
                placed.append(Placed(self._stage.inputs[role], entry, file, file.lstat()))
        return placed

    def check_untouched(self, placed: list[Placed]) -> None:
        """See that placed files are as they were: who writes through a link damages the object.

        Raises:
            VerificationError: one is not; a damaged object is set aside.
        """
        for item in placed:
            if item.file.exists() and same_file(item.file.lstat(), item.state):
                continue
            found = f"that {self._stage.name} wrote to its input"
            if self._store.examine(item.entry) is not None:
                raise self._give_up(item.stage, item.entry, found)
            raise VerificationError(
                f"{self._stage.name}: expected its input {item.file.name} as it was, found {found}"
            )

    def mend(self, entry: Entry, recalled: Mapping[str, Manifest] = MappingProxyType({})) -> bool:
        """Take an object back from a view that still holds it, also one of ``recalled``."""
        source = self.repair.mend(entry, recalled)
        if source is None:
            return False
        self.note(entry)
        self._report.say(f"mended {source.path} of {source.stage} in the store from its view")
        return True

    def _give_up(self, input_stage: str, entry: Entry, found: str) -> VerificationError:
        owner = self.repair.owner(entry, {input_stage, *ancestors(self._graph, input_stage)})
        return self.repair.withdraw(owner or Owner(input_stage, entry.sha256), entry, found)
