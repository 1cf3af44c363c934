"""Runs one stage: looks its identity up, or computes it and publishes what it made.

The order of writing is objects, action record, journal, view, manifest; a kill between any
two leaves nothing half-published, and the rerun goes on from there.
"""

import errno
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from instella.artifacts import journal
from instella.artifacts.identity import Toolchain, identity, identity_key
from instella.artifacts.job import Job
from instella.artifacts.lineage import Owner, ancestors
from instella.artifacts.manifest import Entry, Manifest, check_paths
from instella.artifacts.repair import Repair
from instella.artifacts.stamps import Stamps, same_file
from instella.artifacts.store import plain_files
from instella.artifacts.workspace import Workspace, input_manifests
from instella.canonical import json_bytes, sha256_bytes
from instella.errors import KitError, VerificationError
from instella.progress import Reporter
from instella.recipe.graph import Stage

_SPACE = (errno.ENOSPC, errno.EDQUOT)
_RIGHTS = (errno.EACCES, errno.EPERM, errno.EROFS)
_SHAPE = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


def run_stage(
    stage: Stage,
    graph: Mapping[str, Stage],
    workspace: Workspace,
    toolchain: Toolchain,
    function: Callable[[Job], None],
    report: Reporter | None = None,
) -> Manifest:
    """Make a stage's artifact, or take it from the store when its identity is known.

    Args:
        stage: what to run.
        graph: the whole graph, to name who answers for a bad input.
        workspace: where.
        toolchain: code, lock, numerics class and image of the identity.
        function: computes the artifact's files; called on a miss only.
        report: progress lines.

    Raises:
        Incomplete: an input has no manifest yet.
        VerificationError: bytes of an input are bad; they are set aside, so that
            running the stage that made them makes them again.
        KitError: the disk is full or a folder may not be written.
    """
    report = report or Reporter(stage.name)
    try:
        return _Execution(stage, graph, workspace, toolchain, function, report).run()
    except OSError as error:
        plain = _plain_error(stage.name, error, workspace)
        if plain is None:
            raise
        raise plain from error


@dataclass(frozen=True)
class _Placed:
    """One file of an input: the stage that made it, and its state when handed over."""

    stage: str
    entry: Entry
    file: Path
    state: os.stat_result


class _Execution:
    """One call of ``run_stage``."""

    def __init__(
        self,
        stage: Stage,
        graph: Mapping[str, Stage],
        workspace: Workspace,
        toolchain: Toolchain,
        function: Callable[[Job], None],
        report: Reporter,
    ) -> None:
        self.stage = stage
        self.graph = graph
        self.workspace = workspace
        self.store = workspace.store
        self.toolchain = toolchain
        self.function = function
        self.report = report
        self.repair = Repair(stage.name, graph, workspace)
        # Objects verified by this execution, in the state in which they were hashed.
        self.verified: dict[Path, tuple[Entry, os.stat_result]] = {}
        self.inputs = input_manifests(stage, workspace)
        contents = {role: manifest.content for role, manifest in self.inputs.items()}
        self.identity = identity(stage, toolchain, contents)
        self.key = identity_key(self.identity)
        self.work = (self.store.root / "work" / self.key).absolute()

    def run(self) -> Manifest:
        self._keep_code()
        with self.store.lock(self.key, self._say_waiting):
            started, clock = journal.started_at(), time.monotonic()
            manifest = self._recall()
            outcome = "hit" if manifest is not None else "computed"
            if manifest is None:
                manifest = self._compute()
            _remove(self.work)
            entry = {
                "started": started,
                "seconds": round(time.monotonic() - clock, 3),
                "outcome": outcome,
                "identity": self.key,
                "content": manifest.content,
                "ranks": self.workspace.ranks,
                **journal.host_facts(),
            }
            journal.append(self.workspace.results, self.stage.name, entry)
            self._show(manifest)
        self.report.say(f"{outcome}, {len(manifest.files)} files, content {manifest.content[:16]}")
        Stamps(self.store).renew(self.verified)
        return manifest

    def _say_waiting(self) -> None:
        self.report.say("another process runs this stage; waiting for its result")

    def _keep_code(self) -> None:
        """Keep what the code hash is made of, so that a change can name its modules."""
        closure = json_bytes(self.toolchain.code.closure(self.stage.kind))
        path = self.store.root / "code" / sha256_bytes(closure)
        if not path.is_file():
            self.store.write(path, closure)

    def _recall(self) -> Manifest | None:
        """The recorded result, its objects verified; None if there is none to use."""
        manifest = self.store.action(self.key)
        if manifest is None:
            return None
        bad = self._verify(manifest)
        for entry, found in bad.items():
            if self._mend(entry, {self.stage.name: manifest}):
                continue
            owner = self.repair.owner(entry, ancestors(self.graph, self.stage.name))
            if owner is not None:
                raise self.repair.withdraw(owner, entry, found)
            self.store.quarantine(entry.sha256)
            self.store.drop_action(self.key)
            path = next(path for path, other in manifest.files.items() if other == entry)
            self.report.say(f"{path} in the store is bad ({found}); computing it again")
            return None
        return manifest

    def _compute(self) -> Manifest:
        inputs, output, scratch = (self.work / name for name in ("inputs", "output", "scratch"))
        _remove(inputs)
        _remove(output)
        self._verify_inputs()
        for folder in (inputs, output, scratch, self.workspace.downloads):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            placed = self._place_inputs(inputs)
            self.function(self._job(inputs, output, scratch))
            self._check_inputs_untouched(placed)
            manifest = self._publish(output)
        finally:
            _remove(inputs)
            _remove(output)
        self.store.record(self.key, manifest)
        return manifest

    def _job(self, inputs: Path, output: Path, scratch: Path) -> Job:
        return Job(
            stage=self.stage.name,
            settings=self.stage.settings,
            inputs={role: inputs / role for role in self.inputs},
            output=output,
            scratch=scratch,
            downloads=self.workspace.downloads.absolute(),
            recipe_folder=self.workspace.recipe_folder.absolute(),
            numerics=self.toolchain.numerics,
            ranks=self.workspace.ranks,
            report=self.report,
        )

    def _verify(self, manifest: Manifest) -> dict[Entry, str]:
        """Rehash a manifest's objects: the bad ones with what was found."""
        states = {}
        for entry in manifest.files.values():
            path = self.store.object_path(entry.sha256)
            if path.is_file():
                states[path] = (entry, path.lstat())
        bad = self.store.examine_all(manifest.files.values())
        good = {path: state for path, state in states.items() if state[0] not in bad}
        self.verified.update(good)
        return bad

    def _verify_inputs(self) -> None:
        for role, manifest in self.inputs.items():
            for entry, found in self._verify(manifest).items():
                if not self._mend(entry):
                    raise self._give_up(self.stage.inputs[role], entry, found)

    def _place_inputs(self, inputs: Path) -> list[_Placed]:
        placed = []
        for role, manifest in self.inputs.items():
            self.store.place(manifest, inputs / role)
            for path, entry in manifest.files.items():
                file = inputs / role / path
                placed.append(_Placed(self.stage.inputs[role], entry, file, file.lstat()))
        return placed

    def _check_inputs_untouched(self, placed: list[_Placed]) -> None:
        """A stage that writes through a hard link damages the object itself."""
        for item in placed:
            if item.file.exists() and same_file(item.file.lstat(), item.state):
                continue
            found = f"that {self.stage.name} wrote to its input"
            if self.store.examine(item.entry) is not None:
                raise self._give_up(item.stage, item.entry, found)
            raise VerificationError(
                f"{self.stage.name}: expected its input {item.file.name} as it was, found {found}"
            )

    def _give_up(self, input_stage: str, entry: Entry, found: str) -> VerificationError:
        owner = self.repair.owner(entry, {input_stage, *ancestors(self.graph, input_stage)})
        return self.repair.withdraw(owner or Owner(input_stage, entry.sha256), entry, found)

    def _mend(self, entry: Entry, recalled: Mapping[str, Manifest] = MappingProxyType({})) -> bool:
        source = self.repair.mend(entry, recalled)
        if source is None:
            return False
        stored = self.store.object_path(entry.sha256)
        self.verified[stored] = (entry, stored.lstat())
        self.report.say(f"mended {source.path} of {source.stage} in the store from its view")
        return True

    def _publish(self, output: Path) -> Manifest:
        try:
            files = plain_files(output)
            check_paths(files)
        except ValueError as error:
            raise VerificationError(f"{self.stage.name}: output: {error}") from None
        if not files:
            raise VerificationError(f"{self.stage.name}: made no file; its code has to write some")
        entries = {}
        for path, file in files.items():
            entries[path] = self.store.publish(file)
            stored = self.store.object_path(entries[path].sha256)
            self.verified[stored] = (entries[path], stored.lstat())
        return Manifest(self.stage.name, self.stage.kind, "computed", self.identity, entries)

    def _show(self, manifest: Manifest) -> None:
        """Place view and manifest; the manifest stands only beside its own view."""
        path = self.workspace.manifest(self.stage.name)
        data = manifest.to_bytes()
        with self.store.lock("view-" + sha256_bytes(str(path.absolute()).encode())):
            if path.parent.is_symlink():
                # What it leads to is not the run's own, so nothing there is removed.
                path.parent.unlink()
            if path.is_symlink() or (path.is_file() and path.read_bytes() != data):
                path.unlink()
            self.store.place(manifest, path.parent)
            self.store.write(path, data)


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def _plain_error(stage: str, error: OSError, workspace: Workspace) -> KitError | None:
    where = Path(error.filename) if error.filename else workspace.store.root
    if error.errno in _SPACE:
        return KitError(f"{stage}: {where}: the disk is full; free some space and run it again")
    if error.errno in _RIGHTS:
        return KitError(
            f"{stage}: {where}: {os.strerror(error.errno)}; give this user the right to use it"
        )
    places = (workspace.store.root.absolute(), workspace.results.absolute())
    if error.errno in _SHAPE and any(where.absolute().is_relative_to(place) for place in places):
        return KitError(
            f"{stage}: {where}: a file stands where a folder is needed, or the other "
            "way round; move it away and run it again"
        )
    return None
