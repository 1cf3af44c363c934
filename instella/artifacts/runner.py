"""Runs one stage: looks its identity up, or computes it and publishes what it made.

The order of writing is objects, action record, journal, view, manifest; a kill between any
two leaves nothing half-published, and the rerun goes on from there.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from instella.artifacts import journal
from instella.artifacts.disk_errors import plain_errors
from instella.artifacts.identity import Toolchain, identity, identity_key
from instella.artifacts.inputs import Inputs
from instella.artifacts.job import Job
from instella.artifacts.manifest import Entry, Manifest, check_paths, ledger_paths
from instella.artifacts.notes import keep_notes
from instella.artifacts.stamps import Stamps
from instella.artifacts.store import plain_files
from instella.artifacts.workspace import Workspace
from instella.canonical import json_bytes, sha256_bytes
from instella.errors import Incomplete, VerificationError
from instella.progress import Reporter
from instella.recipe.graph import Stage
from instella.recipe.imports import IMPORT, ancestors


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
        toolchain: code, lock, numerics class and images of the identity.
        function: computes the artifact's files; called on a miss only.
        report: progress lines.

    Raises:
        Incomplete: an input has no manifest yet, or an imported stage is not in the store.
        VerificationError: bytes of an input are bad; they are set aside, so that
            running the stage that made them makes them again.
        KitError: the disk is full or a folder may not be written.
    """
    execution = _Execution(
        stage, graph, workspace, toolchain, function, report or Reporter(stage.name)
    )
    with plain_errors(stage.name, workspace):
        return execution.run()


def make_units(
    stage: Stage,
    graph: Mapping[str, Stage],
    workspace: Workspace,
    toolchain: Toolchain,
    function: Callable[[Job], None],
    units: tuple[int, int],
    report: Reporter | None = None,
) -> bool:
    """Make a share of a stage's units in its scratch folder, and publish nothing.

    Any number of processes, on all nodes that share the store, may do so at once, also for
    the same share. ``run_stage`` waits for them and takes what they made.

    Args:
        stage, graph, workspace, toolchain, report: as for ``run_stage``.
        function: makes the units; gets a job with ``units``.
        units: (I, N) for share I of N.

    Returns:
        False if the stage's result is recorded, so that no unit is needed.

    Raises:
        As ``run_stage``.
    """
    execution = _Execution(
        stage, graph, workspace, toolchain, function, report or Reporter(stage.name)
    )
    with plain_errors(stage.name, workspace):
        return execution.make_units(units)


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
        self.inputs = Inputs(stage, graph, workspace, report)
        contents = {role: manifest.content for role, manifest in self.inputs.manifests.items()}
        self.identity = identity(stage, toolchain, contents)
        self.key = identity_key(self.identity)
        self.work = (self.store.root / "work" / self.key).absolute()

    def run(self) -> Manifest:
        with self.store.lock(self.key, self._say_waiting):
            running = self._announce()
            started, clock = journal.started_at(), time.monotonic()
            # it may mend what it finds
            with self.store.in_use(self._say_removal):
                manifest = self._recall()
            outcome = "hit" if manifest is not None else "computed"
            if manifest is None:
                manifest = self._compute() if not self.stage.is_imported else self._refuse()
            _remove(self.work)
            entry = {
                "started": started,
                "seconds": round(time.monotonic() - clock, 3),
                "outcome": outcome,
                "identity": self.key,
                "content": manifest.content,
                "ranks": self.workspace.ranks,
                "sharding": asdict(self.workspace.sharding),
                **journal.host_facts(),
            }
            journal.append(self.workspace.results, self.stage.name, entry)
            self._show(manifest)
            running.unlink(missing_ok=True)
        self.report.say(f"{outcome}, {len(manifest.files)} files, content {manifest.content[:16]}")
        Stamps(self.store).renew(self.inputs.verified)
        return manifest

    def make_units(self, units: tuple[int, int]) -> bool:
        """Let the function fill scratch, beside others that do; False if there is a result."""
        with self.store.lock(self.key, self._say_whole, shared=True):
            if self.store.action(self.key) is not None:
                self.report.say("has its result already, so no units are needed")
                return False
            # Stays until the stage has come to its end.
            self._announce()
            place = self.work / "shares" / f"{os.getpid()}-{os.urandom(8).hex()}"
            try:
                self._call(place, units)
            finally:
                _remove(place)
        Stamps(self.store).renew(self.inputs.verified)
        return True

    def _say_whole(self) -> None:
        self.report.say("another process runs the whole stage; waiting for its end")

    def _say_waiting(self) -> None:
        self.report.say("another process runs this stage; waiting for its result")

    def _say_removal(self) -> None:
        self.report.say("another process removes from the store; waiting for its end")

    def _announce(self) -> Path:
        """Note what this execution works on, so that nothing of it is removed meanwhile."""
        running = journal.running_file(self.workspace.results, self.stage.name)
        with self.store.in_use(self._say_removal):
            self.store.write(running, f"{self.key}\n".encode("ascii"))
            self.store.note_results(self.workspace.results)
        return running

    def _keep_code(self) -> None:
        """Keep what the code hash is made of, so that a change can name its modules."""
        if self.stage.is_imported:
            return
        closure = json_bytes(self.toolchain.code.closure(self.stage.kind))
        path = self.store.root / "code" / sha256_bytes(closure)
        if not path.is_file():
            self.store.write(path, closure)

    def _recall(self) -> Manifest | None:
        """The recorded result, its objects verified; None if there is none to use."""
        manifest = self.store.action(self.key)
        if manifest is None:
            return None
        bad = self.inputs.examine(manifest)
        for entry, found in bad.items():
            if self.inputs.mend(entry, {self.stage.name: manifest}):
                continue
            owner = self.inputs.repair.owner(entry, ancestors(self.graph, self.stage.name))
            if owner is not None:
                raise self.inputs.repair.withdraw(owner, entry, found)
            self.store.quarantine(entry.sha256)
            self.store.drop_action(self.key)
            path = next(path for path, other in manifest.files.items() if other == entry)
            self.report.say(f"{path} in the store is bad ({found}); computing it again")
            return None
        self._keep_code()
        return manifest

    def _refuse(self) -> NoReturn:
        content = self.stage.settings[IMPORT].content
        raise Incomplete(
            f"{self.stage.name}: the recipe imports it as content {content[:16]}..., which the "
            f"store does not hold for this model and tokenizer; run `instella import FOLDER --as "
            f"{self.stage.name}`, or take it out with `instella import --remove {self.stage.name}`"
        )

    def _compute(self) -> Manifest:
        inputs, output = self.work / "inputs", self.work / "output"
        _remove(inputs)
        _remove(output)
        try:
            self._call(self.work)
            with self.store.in_use(self._say_removal):
                manifest = self._publish(output)
                self._keep_code()
                self.store.record(self.key, manifest)
        finally:
            target = journal.notes_folder(self.workspace.results, self.key)
            keep_notes(self.work / "scratch", target)
            _remove(inputs)
            _remove(output)
        return manifest

    def _call(self, place: Path, units: tuple[int, int] | None = None) -> None:
        """Place the inputs in a folder and run the function, which writes to ``output`` there."""
        inputs, output, scratch = place / "inputs", place / "output", self.work / "scratch"
        for folder in (inputs, output, scratch, self.workspace.downloads):
            folder.mkdir(parents=True, exist_ok=True)
        with self.store.in_use(self._say_removal):
            self.inputs.verify()
            placed = self.inputs.place(inputs)
        self.function(self._job(inputs, output, scratch, units))
        self.inputs.check_untouched(placed)

    def _job(self, inputs: Path, output: Path, scratch: Path, units: tuple[int, int] | None) -> Job:
        return Job(
            stage=self.stage.name,
            settings=self.stage.settings,
            inputs={role: inputs / role for role in self.inputs.manifests},
            output=output,
            scratch=scratch,
            downloads=self.workspace.downloads.absolute(),
            recipe_folder=self.workspace.recipe_folder.absolute(),
            numerics=self.toolchain.numerics,
            ranks=self.workspace.ranks,
            report=self.report,
            workers=self.workspace.workers,
            units=units,
            sharding=self.workspace.sharding,
            checkpoints=self.workspace.checkpoints,
        )

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
            self.inputs.note(entries[path])
        ledgers = {path: self._ledger_root(entries[path]) for path in ledger_paths(entries)}
        return Manifest(
            self.stage.name, self.stage.kind, "computed", self.identity, entries, ledgers
        )

    def _ledger_root(self, entry: Entry) -> str:
        # imported here: whatever only reads manifests does not pay for the hash library
        from instella.merkle import file_root

        return file_root(self.store.object_path(entry.sha256))

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
