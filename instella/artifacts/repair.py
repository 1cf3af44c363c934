"""What to do about damaged objects: take them back from a view, or make them again."""

from collections.abc import Mapping

from instella.artifacts.identity import identity_key
from instella.artifacts.lineage import Owner, holders, sound_manifests
from instella.artifacts.manifest import Entry, Manifest, read_manifest
from instella.artifacts.store import describe
from instella.artifacts.workspace import Workspace
from instella.errors import VerificationError
from instella.recipe.graph import Stage


class Repair:
    """Handles damage that the stage ``finder`` meets."""

    def __init__(self, finder: str, graph: Mapping[str, Stage], workspace: Workspace) -> None:
        self._finder = finder
        self._graph = graph
        self._workspace = workspace
        self._store = workspace.store

    def owner(self, entry: Entry, among: set[str]) -> Owner | None:
        """The first of these stages in the graph's order that publishes the bytes."""
        manifests = self._manifests()
        chosen = {name: manifest for name, manifest in manifests.items() if name in among}
        return next(holders(chosen, entry), None)

    def mend(self, entry: Entry, recalled: Mapping[str, Manifest]) -> Owner | None:
        """Take lost bytes back from a view that still holds them; whose view it was.

        Args:
            entry: what was lost.
            recalled: manifests by stage that need not stand in the results any more.
        """
        for owner in holders({**recalled, **self._manifests()}, entry):
            self._store.quarantine(entry.sha256)
            view = self._workspace.results / owner.stage / owner.path
            if self._store.restore(view, entry):
                return owner
        return None

    def withdraw(self, owner: Owner, entry: Entry, found: str) -> VerificationError:
        """Set an object aside and forget the result that has to make it again.

        Returns the error to raise: file, stage, expected, found and what to do.
        """
        self._store.quarantine(entry.sha256)
        path = self._workspace.manifest(owner.stage)
        if path.is_file():
            self._store.drop_action(identity_key(read_manifest(path).identity))
            path.unlink()
        return VerificationError(
            f"{self._finder}: {owner.path} of {owner.stage}: expected {describe(entry)}, "
            f"found {found}; set aside in {self._store.root / 'quarantine'}; rerunning makes "
            f"{owner.stage} again"
        )

    def _manifests(self) -> dict[str, Manifest]:
        return sound_manifests(self._workspace.results, self._graph)
