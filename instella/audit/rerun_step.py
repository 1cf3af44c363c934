"""Replays a step of two runs that part although their inputs are equal.

Both sides have to be made on this machine: same code and lock as this tree. What can differ
between them then is the numerics class and its variables, threads among them. Where both
sides have the same, one replay tells which of the two this machine repeats.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from instella import numerics
from instella.artifacts.identity import Toolchain
from instella.audit.cause import NUMERICS, THREADS, Evidence
from instella.audit.operations import Traced, first_operation, trace
from instella.audit.reexecute import WEIGHTS, kept_steps
from instella.audit.replay import CPU_HOURS, KINDS, Replay, settings_of
from instella.audit.runs import Run
from instella.audit.steps import StepDifference
from instella.errors import BadUse, KitError, MachineError, VerificationError
from instella.progress import Reporter
from instella.recipe.derived import parameter_count
from instella.step_files import LEDGER, STEPS

MODEL_FILE = WEIGHTS[0]
# Published weights are float32 or bfloat16.
LEAST_BYTES = 2


def replay_step(
    left: Run,
    right: Run,
    stage: str,
    step: StepDifference,
    found: list[Evidence],
    report: Reporter,
    cpu_hours: float = CPU_HOURS,
) -> str:
    """One sentence: the first operation that differs, or why none can be named.

    Args:
        left, right: the runs.
        stage: a stage that trains, with equal inputs in both.
        step: its first differing step.
        found: what differs between both identities and journals.
        report: progress.
        cpu_hours: that each replay may take.
    """
    identity = left.manifests[stage].identity
    refusal = _refusal(left, right, stage, found)
    if refusal is not None:
        return f"not made: {refusal}"
    with tempfile.TemporaryDirectory(prefix="instella-diverge-") as temporary:
        try:
            inputs = _inputs(left, stage, identity)
            sides = []
            for run in (left,) if _same(left, right, stage) else (left, right):
                folder = Path(temporary, run.label)
                report.say(f"replays {stage} up to step {step.step} as in {run.label}")
                replay = _replay(run, stage, step.step, inputs, folder)
                _bound(run, replay)
                limited = replace(replay, cpu_seconds=max(1, round(cpu_hours * 3600)))
                sides.append(trace(limited, report))
            if len(sides) == 1:
                return _which(sides[0], left, right, stage, step.step)
            return _between(sides, left, right, stage, step.step, report)
        except (VerificationError, BadUse) as error:
            return f"not made: {error}"
        except MachineError as error:
            return f"not made: {error}; the limit is {cpu_hours:g} hours of CPU (--cpu-hours)"
        except OSError as error:
            return f"not made: {error}"
        except KitError as error:
            return f"not made: the step failed here: {error}"


def _refusal(left: Run, right: Run, stage: str, found: list[Evidence]) -> str | None:
    identity, other = (run.manifests[stage].identity for run in (left, right))
    if left.manifests[stage].kind not in KINDS:
        return f"kind {left.manifests[stage].kind} has no steps"
    for name in ("settings", "code", "lock", "image"):
        if identity.get(name) != other.get(name):
            return f"{name} differ, which is cause enough; both sides cannot be made from one tree"
    if identity.get("image") is not None:
        return "both were made in a container, and steps are run again on the host"
    chosen = _class(left, stage)
    if chosen not in numerics.CLASSES or _class(right, stage) not in numerics.CLASSES:
        return "a numerics class is unknown here"
    tools = Toolchain.here(chosen)
    if identity.get("code") != tools.code.code_hash(left.manifests[stage].kind):
        return "this tree's code is not the one that made the runs"
    if identity.get("lock") != tools.lock:
        return "this tree's lock is not the one that made the runs"
    odd = [item for item in found if item.cause not in (NUMERICS, THREADS)]
    if odd and not _same(left, right, stage):
        return f"{odd[0]} cannot be made here"
    return None


def _class(run: Run, stage: str) -> str:
    value = run.manifests[stage].identity.get("numerics")
    return str(value.get("class")) if isinstance(value, dict) else ""


def _same(left: Run, right: Run, stage: str) -> bool:
    one, other = (run.manifests[stage].identity.get("numerics") for run in (left, right))
    return bool(one == other)


def _inputs(run: Run, stage: str, identity: Any) -> dict[str, Path]:
    """Role to folder, each file compared with its manifest."""
    folders = {}
    for role, content in identity["inputs"].items():
        maker = run.maker(content)
        if maker is None:
            raise VerificationError(
                f"{run.label}: input {role} of {stage} is not among its results"
            )
        for path in run.manifests[maker].files:
            run.file(maker, path)
        folders[role] = (run.results / maker).absolute()
    return folders


def _replay(run: Run, stage: str, step: int, inputs: dict[str, Path], folder: Path) -> Replay:
    identity = run.manifests[stage].identity
    own = dict(numerics.pins(_class(run, stage)))
    wanted = identity["numerics"].get("pins", {})
    pins = {name: value for name, value in wanted.items() if own.get(name) != value}
    return Replay(
        stage=stage, kind=run.manifests[stage].kind, settings=identity["settings"],
        numerics=_class(run, stage), pins=pins, until=step, inputs=inputs, folder=folder,
        start=_start(run, stage, step),
    )  # fmt: skip


def _bound(run: Run, replay: Replay) -> None:
    """Refuse what the run's own files are too small for: its settings are only a claim.

    Raises:
        VerificationError: more parameters than the recorded weights have room for, or more
            steps than there are lines with figures.
    """
    files = run.manifests[replay.stage].files
    for path in (MODEL_FILE, STEPS):
        if path not in files:
            raise VerificationError(f"{run.label}: {replay.stage}: has no {path}")
    model = settings_of(replay).get("model")
    size = run.file(replay.stage, MODEL_FILE).stat().st_size
    if model is not None and LEAST_BYTES * parameter_count(model) > size:
        raise VerificationError(
            f"{run.label}: {replay.stage}: its settings ask for {parameter_count(model)} "
            f"parameters, and {MODEL_FILE} has {size} bytes"
        )
    with run.file(replay.stage, STEPS).open("rb") as file:
        lines = sum(1 for _ in file)
    if replay.until > lines:
        raise VerificationError(
            f"{run.label}: {replay.stage}: step {replay.until} has no line in {STEPS}"
        )


def _start(run: Run, stage: str, step: int) -> tuple[Path, int, Path] | None:
    """The newest checkpoint that the artifact keeps before the step; None for the beginning."""
    kept = max((at for at in kept_steps(run.manifests[stage]) if at < step), default=0)
    if not kept:
        return None
    folder = f"checkpoints/step-{kept:08d}"
    for path in (LEDGER, STEPS, *(f"{folder}/{name}" for name in WEIGHTS)):
        run.file(stage, path)
    artifact = (run.results / stage).absolute()
    return artifact / folder, kept, artifact


def _line(run: Run, stage: str, step: int) -> bytes:
    with run.file(stage, LEDGER).open("rb") as file:
        return next(line for number, line in enumerate(file, 1) if number == step)


def _which(side: Traced, left: Run, right: Run, stage: str, step: int) -> str:
    """Both runs say they were made the same way; which of them does this machine repeat?"""
    equal = [run.label for run in (left, right) if _line(run, stage, step) == side.line]
    what = f"step {step} made here from the same inputs, in the class both runs name,"
    if equal:
        other = "B" if equal == ["A"] else "A"
        return (
            f"{what} is that of {equal[0]}: {other} was made by something that its identity does "
            "not tell, so no operation can be named"
        )
    return f"{what} is that of neither run, so no operation can be named"


def _between(
    sides: list[Traced],
    left: Run,
    right: Run,
    stage: str,
    step: int,
    report: Reporter,
) -> str:
    odd = [
        run.label
        for run, side in zip((left, right), sides, strict=True)
        if _line(run, stage, step) != side.line
    ]
    found = first_operation(sides[0], sides[1], report)
    told = str(found) if found else f"no operation of step {step} differs on this machine"
    if odd:
        told += f" (made here, step {step} of {' and '.join(odd)} is not as recorded)"
    return told
