"""Computes a sample of a run again and compares the bytes.

Stages run through their own function, from the recorded inputs alone, in a folder of their
own: the inputs are placed from the store after the audit has rehashed them, settings come
from the recipe, and nothing else of the run is at hand. A training segment is replayed from
the newest checkpoint that the artifact keeps at or before its first step, or from the
stage's start: then every step up to the segment's end is computed, compared and counted.
"""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from instella.artifacts.check import BYTES, LEDGER, MANIFEST, Fault
from instella.artifacts.handover import Handover, write_handover
from instella.artifacts.identity import settings_json
from instella.artifacts.job import Job
from instella.artifacts.lineage import dependants
from instella.artifacts.manifest import Manifest
from instella.artifacts.store import Store, describe, examine_file, plain_files
from instella.audit.child import start
from instella.audit.replay import KINDS, Replay, made
from instella.audit.sample import Unit
from instella.audit.steps import FIELDS, TENSORS, StepLedger, read_ledger
from instella.canonical import parse_json
from instella.errors import (
    BadUse,
    Incomplete,
    KitError,
    MachineError,
    Stopped,
    VerificationError,
)
from instella.numerics import PORTABLE
from instella.progress import Reporter
from instella.recipe.graph import Stage
from instella.step_files import LEDGER as STEP_LEDGER
from instella.step_files import STEPS

Contained = Callable[[str], Callable[[Job], None] | None]

REEXECUTION = "re-execution"
EQUAL, DIFFERS, NOT_RUN = "equal", "differs", "not run"
WEIGHTS = ("model.safetensors", "optimizer.safetensors")
KEPT = re.compile(r"checkpoints/step-(\d{8,})/model\.safetensors")
# These tell of the auditor's machine and its set-up, not of the run.
_OWN = (BadUse, Incomplete, MachineError, Stopped, OSError)


class _NotRun(Exception):
    """Why a unit cannot be computed here."""


@dataclass(frozen=True)
class Outcome:
    """What became of one unit.

    Attributes:
        unit: what was sampled.
        state: ``equal``, ``differs`` or ``not run``.
        first: steps done before the replay began; 0 for a whole stage.
        detail: the reason, if it was not run.
    """

    unit: Unit
    state: str
    first: int = 0
    detail: str = ""


@dataclass
class Reexecution:
    """Runs units of one run again.

    Attributes:
        recipe_file: the recipe.
        graph, manifests, store: of the run.
        numerics: the recipe's numerics class.
        downloads: archives that sources may read; their hashes stand in the recipe.
        bad: stages whose bytes, manifest or ledger the audit found at fault.
        report: progress.
        contained: from a stage to a function that runs it in its container; None, also as an
            answer: it runs on the host, in a process of its own. Segments run on the host.
        faults: filled while units run.
    """

    recipe_file: Path
    graph: Mapping[str, Stage]
    manifests: Mapping[str, Manifest]
    store: Store
    numerics: str
    downloads: Path
    bad: frozenset[str]
    report: Reporter
    contained: Contained | None = None
    faults: list[Fault] = field(default_factory=list)

    def run(self, units: Iterable[Unit], ledgers: Mapping[str, StepLedger]) -> list[Outcome]:
        """Outcomes of all units, in their order.

        Segments of one stage that have to begin at its start are one replay, up to the end of
        the last.
        """
        groups: dict[tuple[str, int], list[Unit]] = {}
        chosen = list(units)
        for unit in chosen:
            groups.setdefault((unit.stage, self._first(unit)), []).append(unit)
        outcomes: dict[Unit, Outcome] = {}
        for number, ((stage, first), group) in enumerate(groups.items(), 1):
            self.report.say(f"computes {number} of {len(groups)} again: {group[-1]}")
            started = time.monotonic()
            for outcome in self._group(stage, first, group, ledgers.get(stage)):
                outcomes[outcome.unit] = outcome
            self.report.say(
                f"{group[-1]}: {outcomes[group[-1]].state}, {time.monotonic() - started:.0f} s"
            )
        return [outcomes[unit] for unit in chosen]

    def _first(self, unit: Unit) -> int:
        """The step of the newest kept checkpoint that a segment can start from; 0 for none."""
        kept = kept_steps(self.manifests[unit.stage])
        return max((step for step in kept if step <= (unit.start or 0)), default=0)

    def _group(
        self, name: str, first: int, group: list[Unit], ledger: StepLedger | None
    ) -> Iterator[Outcome]:
        try:
            wrong = self._wrong(name, first, group[-1].end, ledger)
        except _NotRun as refusal:
            yield from (Outcome(unit, NOT_RUN, first, str(refusal)) for unit in group)
            return
        for unit in group:
            if wrong is None or (unit.end is not None and 0 < unit.end < wrong):
                yield Outcome(unit, EQUAL, first)
            elif unit.start is None or wrong > unit.start or wrong == 0:
                yield Outcome(unit, DIFFERS, first)
            else:
                yield Outcome(unit, NOT_RUN, first, f"step {wrong} before it differs already")

    def _wrong(
        self, name: str, first: int, end: int | None, ledger: StepLedger | None
    ) -> int | None:
        """What ``_whole`` or ``_segment`` says; 0 if the stage fails on its recorded inputs."""
        needed = {name, *self.graph[name].inputs.values()}
        bad = sorted(needed & self.bad) or sorted(needed - self.manifests.keys())
        if bad:
            raise _NotRun(f"{bad[0]} is missing or at fault")
        try:
            with tempfile.TemporaryDirectory(prefix="instella-audit-") as temporary:
                return self._computed(name, Path(temporary), first, end, ledger)
        except OSError as error:  # no room for the folder, or for what is copied into it
            raise _NotRun(_told(error)) from error

    def _computed(
        self, name: str, folder: Path, first: int, end: int | None, ledger: StepLedger | None
    ) -> int | None:
        try:
            inputs = self._place(name, folder / "inputs")
            if end is None or ledger is None or (end == ledger.steps and not first):
                return self._whole(name, folder, inputs, ledger)
            return self._segment(name, folder, inputs, first, end, ledger)
        except (KitError, OSError) as error:
            told = _told(error).replace(str(folder), "the new folder")
            remote = self._needs_network(name) and not isinstance(error, VerificationError)
            if remote or isinstance(error, _OWN):
                raise _NotRun(told) from error
            self._fault(name, "its files", "a result from its recorded inputs", told)
            return 0

    def _needs_network(self, name: str) -> bool:
        stage = self.graph[name]
        teacher = stage.settings.get("teacher")
        return stage.kind == "source" or getattr(teacher, "kind", None) == "endpoint"

    def _place(self, name: str, folder: Path) -> dict[str, Path]:
        folders = {}
        for role, source in self.graph[name].inputs.items():
            folders[role] = folder / role
            self.store.copy(self.manifests[source], folders[role])
        return folders

    def _whole(
        self, name: str, folder: Path, inputs: Mapping[str, Path], ledger: StepLedger | None
    ) -> int | None:
        """Run a stage to its end; None if all files are equal.

        Otherwise the first step whose ledger line differs, the last if none does, and 0 for a
        stage that does not train.
        """
        for part in ("output", "scratch"):
            (folder / part).mkdir()
        self.downloads.mkdir(parents=True, exist_ok=True)
        job = Job(
            stage=name, settings={}, inputs=inputs, output=folder / "output",
            scratch=folder / "scratch", downloads=self.downloads.absolute(),
            recipe_folder=self.recipe_file.absolute().parent, numerics=self.numerics, ranks=1,
            report=self.report,
        )  # fmt: skip
        function = self.contained(name) if self.contained is not None else None
        if function is not None:
            function(replace(job, settings=self.graph[name].settings))
        else:
            file = folder / "job.json"
            write_handover(file, Handover(self.recipe_file.absolute(), job))
            start("instella", ["job"], file, self.report)
        wrong = self._compare(name, folder / "output")
        path = folder / "output" / STEP_LEDGER
        if ledger is None or wrong is None or not path.is_file():
            return wrong
        return self._compare_ledger(name, path, ledger, ledger.steps) or ledger.steps

    def _compare(self, name: str, output: Path) -> int | None:
        before = len(self.faults)
        found, recorded = plain_files(output), self.manifests[name].files
        for path in sorted({*found, *recorded}):
            if path not in recorded:
                self._fault(name, path, "this file too", "no such file in the artifact")
            elif path not in found:
                self._fault(name, path, "no such file", describe(recorded[path]))
            elif (odd := examine_file(found[path], recorded[path])) is not None:
                self._fault(name, path, f"{odd} from its inputs", describe(recorded[path]))
        return None if len(self.faults) == before else 0

    def _segment(
        self, name: str, folder: Path, inputs: Mapping[str, Path], first: int, end: int,
        ledger: StepLedger,
    ) -> int | None:  # fmt: skip
        """Replay a stage to a step; None if all steps are equal, else the first that is not."""
        contained = self.manifests[name].identity.get("image") is not None
        if contained and self.numerics != PORTABLE:
            raise _NotRun(
                "made in a container, and segments are computed on the host, whose bytes are the "
                f"same in {PORTABLE} only"
            )
        stage, start_at = self.graph[name], None
        if first:
            artifact = folder / "artifact"
            self.store.copy(self.manifests[name], artifact)
            start_at = (artifact / f"checkpoints/step-{first:08d}", first, artifact)
        replay = Replay(
            stage=name, kind=stage.kind, settings=settings_json(stage), numerics=self.numerics,
            until=end, inputs=inputs, folder=folder / "replay", pins={}, start=start_at,
        )  # fmt: skip
        start("instella.audit.replay", [], replay.write(), self.report)
        checkpoint = made(replay)
        wrong = self._compare_ledger(name, checkpoint / STEP_LEDGER, ledger, end)
        if wrong is None:
            wrong = self._compare_steps(name, checkpoint / STEPS, end)
        if wrong is None and end == ledger.steps:
            wrong = self._compare_weights(name, checkpoint, end)
        return wrong

    def _compare_weights(self, name: str, checkpoint: Path, end: int) -> int | None:
        """The last checkpoint holds the published weights and moments, byte for byte."""
        for path in WEIGHTS:
            entry = self.manifests[name].files.get(path)
            odd = None if entry is None else examine_file(checkpoint / path, entry)
            if entry is not None and odd is not None:
                self._fault(name, path, f"{odd} from its inputs", describe(entry))
                return end
        return None

    def _compare_ledger(self, name: str, again: Path, recorded: StepLedger, end: int) -> int | None:
        """The first step up to ``end`` whose line is another one as computed again, or that
        only one side has; None if there is none."""
        lines = again.read_bytes().splitlines(keepends=True)
        for step, line in enumerate(lines[:end], 1):
            if line != recorded.raw(step):
                expected, found = _telling(line, recorded.raw(step))
                self._fault(name, f"{STEP_LEDGER}, step {step}", expected, found)
                return step
        if len(lines) != end:
            self._fault(name, STEP_LEDGER, f"{len(lines)} lines as computed", f"{end} lines")
            return min(len(lines) + 1, end)
        return None

    def _compare_steps(self, name: str, again: Path, end: int) -> int | None:
        entry = self.manifests[name].files.get(STEPS)
        if entry is None:
            self._fault(name, STEPS, "this file too", "no such file in the artifact")
            return 0
        path = self.store.object_path(entry.sha256)
        with path.open("rb") as recorded, again.open("rb") as file:
            for step in range(1, end + 1):
                if file.readline() != recorded.readline():
                    expected = "the figures of the step as computed again"
                    self._fault(name, f"{STEPS}, step {step}", expected, "others")
                    return step
        return None

    def _fault(self, name: str, file: str, expected: str, found: str) -> None:
        readers = dependants(self.graph, name)
        self.faults.append(Fault(name, REEXECUTION, file, expected, found, readers))


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return f"{error.filename or 'a file'}: {os.strerror(error.errno)}"
    return str(error)


def kept_steps(manifest: Manifest) -> list[int]:
    """Steps of the checkpoints that an artifact keeps, ascending."""
    matches = (KEPT.fullmatch(path) for path in manifest.files)
    return sorted(int(match[1]) for match in matches if match)


def _telling(computed: bytes, recorded: bytes) -> tuple[str, str]:
    """The first field of a ledger's line that differs, computed and recorded."""
    one, other = (parse_json(data, "the line") for data in (computed, recorded))
    for name in FIELDS:
        if one.get(name) != other.get(name):
            return f"{name} {str(one.get(name))[:16]} as computed", str(other.get(name))[:16]
    tensors = [value.get(TENSORS, {}).get("names", {}) for value in (one, other)]
    for name in sorted({*tensors[0], *tensors[1]}):
        if tensors[0].get(name) != tensors[1].get(name):
            sides = [str(side.get(name))[:16] for side in tensors]
            return f"{name} {sides[0]} as computed", sides[1]
    return "the line as computed", "another line"


def ledgers_of(
    store: Store, graph: Mapping[str, Stage], manifests: Mapping[str, Manifest], bad: Iterable[str]
) -> tuple[dict[str, StepLedger], list[Fault]]:
    """Step ledgers of the stages that train and are not at fault; faults of their lines."""
    found, faults = {}, []
    for name, manifest in manifests.items():
        entry = manifest.files.get(STEP_LEDGER)
        if entry is None or name in bad or manifest.kind not in KINDS:
            continue
        try:
            found[name] = read_ledger(store.object_path(entry.sha256))
        except VerificationError as error:
            readers = dependants(graph, name)
            faults.append(Fault(name, LEDGER, STEP_LEDGER, "sound lines", str(error), readers))
    return found, faults


def at_fault(faults: Iterable[Fault]) -> frozenset[str]:
    """Stages whose own bytes cannot be built on."""
    return frozenset(fault.stage for fault in faults if fault.kind in (BYTES, MANIFEST, LEDGER))
