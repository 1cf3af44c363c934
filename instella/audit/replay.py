"""Runs the steps of a training stage again, up to one of them, in a process of its own.

    python -m instella.audit.replay FILE

The stage's own function does the work; nothing in it knows of a replay. It is told to save a
resumable checkpoint at the wanted step and stopped behind it, so the checkpoint holds step
lines and step ledger of all steps done. With a kept checkpoint to start from it resumes
there, like a stage that was killed. With a trace it also records every operation of the last
step (``instella.audit.tracing``).
"""

import importlib
import os
import resource
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from instella import numerics
from instella.artifacts.handover import write_failure
from instella.artifacts.identity import lock_file
from instella.artifacts.job import Job
from instella.canonical import json_bytes, parse_json, read_json
from instella.errors import ERROR_PREFIX, BadUse, KitError, VerificationError
from instella.progress import Reporter
from instella.recipe.fields import FieldReader
from instella.recipe.reader import node_of
from instella.recipe.settings import Finetune, Model, Policy, Preference, Pretrain
from instella.step_files import LEDGER, STEPS
from instella.wheels import assert_wheels

FORMAT = "instella.replay/1"
KINDS = {"pretrain": Pretrain, "finetune": Finetune, "preference": Preference, "policy": Policy}
_CLASSES = {"model": Model, **KINDS}
_FOLDERS = ("output", "scratch", "downloads", "recipe_folder")
CHECKPOINTS = "checkpoints"
CPU_HOURS = 1.0
"""Limit of a replay whose settings nobody vouches for."""


@dataclass(frozen=True)
class Replay:
    """What to run.

    Attributes:
        stage, kind: of the graph.
        settings: as in the stage's identity.
        numerics: numerics class.
        pins: variables that differ from the class's own; they are set behind those.
        until: last step, from 1.
        inputs: role to folder.
        folder: an empty one; output, scratch and trace lie in it afterwards.
        start: folder of a kept checkpoint, its step, and the artifact it belongs to; or None.
        trace: record the operations of the last step.
        dump: number of the operation whose results are kept, as ``.npy`` files.
        cpu_seconds: after which the kernel ends the process; None for no limit.
    """

    stage: str
    kind: str
    settings: Mapping[str, Any]
    numerics: str
    until: int
    inputs: Mapping[str, Path]
    folder: Path
    pins: Mapping[str, str]
    start: tuple[Path, int, Path] | None = None
    trace: bool = False
    dump: int | None = None
    cpu_seconds: int | None = None

    @property
    def trace_file(self) -> Path:
        """Where the operations are written."""
        return self.folder / "operations.jsonl"

    def write(self) -> Path:
        """Write the description into the folder; returns its path."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "replay.json"
        start = self.start and [str(self.start[0]), self.start[1], str(self.start[2])]
        value = {
            "format": FORMAT,
            "stage": self.stage,
            "kind": self.kind,
            "settings": dict(self.settings),
            "numerics": self.numerics,
            "pins": dict(self.pins),
            "until": self.until,
            "inputs": {role: str(folder) for role, folder in self.inputs.items()},
            "start": start,
            "trace": self.trace,
            "dump": self.dump,
            "cpu_seconds": self.cpu_seconds,
        }
        path.write_bytes(json_bytes(value))
        return path


def read_replay(path: Path) -> Replay:
    """What ``Replay.write`` wrote; VerificationError or BadUse for another file."""
    value = read_json(path)
    if not isinstance(value, dict) or value.pop("format", None) != FORMAT:
        raise BadUse(f"{path}: not a replay of format {FORMAT}")
    start = value.pop("start")
    return Replay(
        **{**value, "inputs": {role: Path(name) for role, name in value["inputs"].items()}},
        folder=path.parent,
        start=start and (Path(start[0]), start[1], Path(start[2])),
    )


def settings_of(replay: Replay) -> dict[str, Any]:
    """The stage's settings as its function wants them; BadUse for what no recipe can hold."""
    reader = FieldReader(f"settings of {replay.stage}")
    return {
        name: reader.read(_CLASSES[name], node_of(value))
        for name, value in replay.settings.items()
        if name in _CLASSES
    }


class Reached(Exception):
    """The wanted step is done."""


class _Watcher(Reporter):
    """Tells of each finished step and says nothing."""

    def __init__(self, stage: str, seen: Callable[[int], None]) -> None:
        super().__init__(stage)
        self._seen = seen

    def say(self, text: str) -> None:
        """Nothing: who asked for the replay reports."""

    def step(self, step: int, total: int, tokens: int = 0, **figures: float) -> None:
        """Pass the step on."""
        self._seen(step)


def run(replay: Replay) -> None:
    """Run the steps in this process, which has not imported torch yet.

    Raises:
        VerificationError: the installed packages are not the wheels of the lock.
        KitError: what the stage's function raises; or it ended before the wanted step.
    """
    assert_wheels(lock_file(), None)
    numerics.apply_environment(replay.numerics)
    os.environ.update(_known(replay))
    chosen = settings_of(replay)
    group = getattr(chosen[replay.kind], "training", None)
    if replay.kind not in KINDS or group is None:
        raise BadUse(f"{replay.stage}: kind {replay.kind!r} has no steps to run again")
    training = replace(group, save_every=replay.until, keep_checkpoints_every=None)
    chosen[replay.kind] = replace(chosen[replay.kind], training=training)
    folders = {name: replay.folder / name for name in _FOLDERS}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    if replay.start is not None:
        _resume(replay, chosen, folders["scratch"])
    module = importlib.import_module(f"instella.stages.{replay.kind}")
    if not replay.pins:
        numerics.assert_active(replay.numerics)
    with ExitStack() as stack:
        report = _Watcher(replay.stage, _observer(replay, stack))
        job = Job(
            stage=replay.stage, settings=chosen, inputs=replay.inputs,
            output=folders["output"], scratch=folders["scratch"], downloads=folders["downloads"],
            recipe_folder=folders["recipe_folder"], numerics=replay.numerics, ranks=1,
            report=report,
        )  # fmt: skip
        try:
            module.run(job)
        except Reached:
            return
    raise KitError(f"{replay.stage}: training ends before step {replay.until}")


def _limit(seconds: int | None) -> None:
    if seconds is not None:
        # The signal that tells of the limit would leave a dump of the memory.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def _known(replay: Replay) -> dict[str, str]:
    allowed = {name for one in numerics.CLASSES for name in numerics.pins(one)}
    odd = sorted(replay.pins.keys() - allowed)
    if odd:
        raise BadUse(f"{replay.stage}: {odd[0][:40]!r} is no variable of a numerics class")
    return dict(replay.pins)


def _observer(replay: Replay, stack: ExitStack) -> Callable[[int], None]:
    """Stops behind the last step; records it if a trace is wanted."""
    from instella.audit.tracing import Tracer

    def begin() -> None:
        stack.enter_context(Tracer(replay.trace_file, replay.dump))

    def seen(step: int) -> None:
        if step >= replay.until:
            raise Reached
        if replay.trace and step == replay.until - 1:
            begin()

    if replay.trace and replay.until == 1:
        _before_first_step(replay.kind, begin)
    return seen


def _before_first_step(kind: str, begin: Callable[[], None]) -> None:
    """Call ``begin`` once the first step starts, which nothing reports.

    Both loops seed the generators first thing in every step, so that call is intercepted.
    """
    name = "instella.stages.policy" if kind == "policy" else "instella.training.loop"
    loop = importlib.import_module(name)
    seed = loop.seed_generators

    def first(*arguments: Any) -> None:
        loop.seed_generators = seed  # type: ignore[attr-defined]
        begin()
        seed(*arguments)

    loop.seed_generators = first  # type: ignore[attr-defined]


def _resume(replay: Replay, chosen: Mapping[str, Any], scratch: Path) -> None:
    """Make a resumable checkpoint of a kept one and the artifact's own logs up to it."""
    from instella.canonical import read_jsonl
    from instella.training import checkpoint
    from instella.training.ledger import tensor_digests

    assert replay.start is not None
    kept, step, artifact = replay.start
    ledger = (artifact / LEDGER).read_bytes().splitlines(keepends=True)
    model = checkpoint.load_tensors(kept / checkpoint.MODEL)
    moments = checkpoint.load_tensors(kept / checkpoint.OPTIMIZER)
    state = {**{f"parameter.{name}": item for name, item in model.items()}, **moments}
    if parse_json(ledger[step - 1], str(kept)).get("tensors") != tensor_digests(state):
        raise VerificationError(
            f"{replay.stage}: the kept checkpoint of step {step} is not what the step ledger says"
        )
    updates = step
    if replay.kind == "policy":
        updates *= importlib.import_module("instella.stages.policy").updates_per_step(
            chosen["policy"]
        )
    checkpoint.save(
        scratch / CHECKPOINTS,
        updates,
        model,
        moments,
        read_jsonl(artifact / STEPS)[:step],
        ledger[:step],
    )


def made(replay: Replay) -> Path:
    """Folder of the checkpoint that a finished replay left, with step lines and ledger.

    Raises:
        KitError: there is none.
    """
    found = sorted((replay.folder / "scratch" / CHECKPOINTS).glob("step-*"))
    if not found:
        raise KitError(f"{replay.stage}: the replay left no checkpoint at step {replay.until}")
    return found[-1]


def main(arguments: list[str]) -> int:
    """Run the replay that a file describes; errors are one line, as of the command line."""
    try:
        if len(arguments) != 1:
            raise BadUse("usage: python -m instella.audit.replay FILE")
        file = Path(arguments[0])
        try:
            replay = read_replay(file)
            _limit(replay.cpu_seconds)
            run(replay)
        except Exception as error:
            write_failure(file, error)
            raise
    except KitError as error:
        print(f"{ERROR_PREFIX}{' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
