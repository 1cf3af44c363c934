"""Where two runs part: stage, file, row or step, tensor, element, and why."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from instella.audit.cause import Evidence, evidence, likely
from instella.audit.comparators import compare_files
from instella.audit.comparators.documents import compare_values
from instella.audit.comparators.finding import Comparison, Finding
from instella.audit.runs import Run
from instella.audit.steps import StepDifference, StepLedger, read_ledger, step_difference
from instella.canonical import parse_json
from instella.errors import VerificationError
from instella.step_files import LEDGER, STEPS

SHOWN = 5


@dataclass(frozen=True)
class Trail:
    """How one stage differs.

    Attributes:
        stage: name.
        missing: ``A`` or ``B``, where it has no result; then all else is empty.
        inputs: roles whose content differs.
        files: differing files with how they differ, the step ledger left out.
        step: the first differing step of a stage that trains.
        figures: that step's figures that differ, from ``steps.jsonl``.
        evidence: what differs between the two identities and journals.
        cause: the likely one.
        operation: what a replay of the step says; None if none was made.
    """

    stage: str
    missing: str | None = None
    inputs: tuple[str, ...] = ()
    files: dict[str, Comparison] = field(default_factory=dict)
    step: StepDifference | None = None
    figures: tuple[Finding, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    cause: str = ""
    operation: str | None = None


@dataclass(frozen=True)
class Divergence:
    """What differs between two runs.

    Attributes:
        compared: stages that both runs have.
        differing: those among them, or of one run alone, that differ, in order.
        origins: those of both runs whose inputs are equal: each parts for a reason of its own.
        trails: the first origin, and the first stage behind it that trains.
        absent: those of one run alone.
    """

    compared: int
    differing: tuple[str, ...]
    origins: tuple[str, ...]
    trails: tuple[Trail, ...]
    absent: tuple[str, ...] = ()


Replayer = Callable[[Run, Run, str, StepDifference, list[Evidence]], str | None]


def diverge(left: Run, right: Run, replay: Replayer | None = None) -> Divergence:
    """Compare two runs.

    Args:
        left, right: A and B.
        replay: says what a replay of a step shows, for a stage whose inputs are equal.

    Raises:
        VerificationError: bytes that are needed are not those of their manifest.
    """
    differing = [name for name in _every(left, right) if _differs(left, right, name)]
    absent = [name for name in differing if not all(name in run.manifests for run in (left, right))]
    origins = [name for name in differing if name not in absent and not _inputs(left, right, name)]
    first = (origins or differing)[:1]
    trails = [_trail(left, right, name, replay) for name in first]
    if trails and trails[0].step is None:
        behind = (name for name in differing if name != first[0] and _trains(left, right, name))
        trails += [_trail(left, right, name, None) for name in list(behind)[:1]]
    compared = sum(name in right.manifests for name in left.manifests)
    return Divergence(compared, tuple(differing), tuple(origins), tuple(trails), tuple(absent))


def _every(left: Run, right: Run) -> Iterator[str]:
    yield from left.manifests
    yield from (name for name in right.manifests if name not in left.manifests)


def _differs(left: Run, right: Run, name: str) -> bool:
    sides = [run.manifests.get(name) for run in (left, right)]
    return sides[0] is None or sides[1] is None or sides[0].content != sides[1].content


def _inputs(left: Run, right: Run, name: str) -> tuple[str, ...]:
    """Roles whose content differs between both results of a stage."""
    if name not in left.manifests or name not in right.manifests:
        return ()
    one, other = (run.manifests[name].identity["inputs"] for run in (left, right))
    return tuple(role for role in sorted({*one, *other}) if one.get(role) != other.get(role))


def _trains(left: Run, right: Run, name: str) -> bool:
    return all(
        name in run.manifests and LEDGER in run.manifests[name].files for run in (left, right)
    )


def _trail(left: Run, right: Run, name: str, replay: Replayer | None) -> Trail:
    for run in (left, right):
        if name not in run.manifests:
            return Trail(name, missing=run.label)
    found = evidence(left, right, name)
    step = _step(left, right, name)
    inputs = _inputs(left, right, name)
    operation = None
    if step is not None and step.missing is None and replay is not None and not inputs:
        operation = replay(left, right, name, step, found)
    return Trail(
        stage=name,
        inputs=inputs,
        files=dict(_files(left, right, name)),
        step=step,
        figures=_figures(left, right, name, step),
        evidence=tuple(found),
        cause=likely(found, step.fields[0] if step and step.fields else None),
        operation=operation,
    )


def _ledger(run: Run, name: str) -> StepLedger:
    return read_ledger(run.file(name, LEDGER))


def _step(left: Run, right: Run, name: str) -> StepDifference | None:
    if not _trains(left, right, name):
        return None
    return step_difference(_ledger(left, name), _ledger(right, name))


def _figures(
    left: Run, right: Run, name: str, step: StepDifference | None
) -> tuple[Finding, ...]:  # fmt: skip
    """Figures of the differing step with both values."""
    if step is None or step.missing or not all(
        STEPS in run.manifests[name].files for run in (left, right)
    ):  # fmt: skip
        return ()
    lines = [_row(run.file(name, STEPS), step.step) for run in (left, right)]
    found = compare_values(*lines).findings
    return tuple(
        Finding(item.place.removeprefix("$."), item.left, item.right, item.extent) for item in found
    )


def _row(path: Path, number: int) -> Any:
    with path.open("rb") as file:
        for place, line in enumerate(file, 1):
            if place == number:
                return parse_json(line, f"{path}, line {number}")
    raise VerificationError(f"{path}: has no line {number}, as the step ledger has")


def _files(left: Run, right: Run, name: str) -> Iterator[tuple[str, Comparison]]:
    one, other = (run.manifests[name].files for run in (left, right))
    for path in sorted({*one, *other}):
        if path == LEDGER or one.get(path) == other.get(path):
            continue
        if path not in one or path not in other:
            yield path, Comparison(f"only in {'A' if path in one else 'B'}")
        else:
            yield path, compare_files(path, left.file(name, path), right.file(name, path))


def lines(found: Divergence) -> Iterator[str]:
    """What a person reads."""
    if not found.differing:
        yield f"equal: {found.compared} stages"
        return
    for number, trail in enumerate(found.trails):
        yield from _trail_lines(trail, "first difference" if not number else "first in training")
    others = [name for name in found.origins if name != found.trails[0].stage]
    if others:
        yield f"other stages that differ with equal inputs: {', '.join(others)}"
    if found.absent:
        yield f"in one of the runs only, so not compared: {', '.join(found.absent)}"
    differing = [name for name in found.differing if name not in found.absent]
    if differing:
        yield f"{len(differing)} stages differ: {', '.join(differing)}"


def _trail_lines(trail: Trail, title: str) -> Iterator[str]:
    if trail.missing:
        yield f"{title}: {trail.stage} has no result in {trail.missing}"
        return
    names = ", ".join(trail.inputs)
    inputs = f"what differs among its inputs: {names}" if names else "its inputs are equal"
    yield f"{title}: {trail.stage} ({inputs})"
    yield f"  likely cause: {trail.cause}"
    for item in trail.evidence[:SHOWN]:
        yield f"    {item}"
    if len(trail.evidence) > SHOWN:
        yield f"    and {len(trail.evidence) - SHOWN} more"
    yield from _step_lines(trail)
    for path, comparison in trail.files.items():
        yield f"  {path}: {comparison.summary}"
        for finding in comparison.findings[:SHOWN]:
            yield f"    {finding}"
    if trail.operation:
        yield f"  replay: {trail.operation}"


def _step_lines(trail: Trail) -> Iterator[str]:
    step = trail.step
    if step is None:
        return
    if step.missing:
        yield f"  step {step.step}: the first that {step.missing} lacks; all before are equal"
        return
    named = " and ".join(step.fields) or "digests of tensors"
    rest = f"; equal: {', '.join(step.equal)}" if step.equal else ""
    yield f"  step {step.step}: {named} differ{rest}"
    for item in trail.figures:
        yield f"    {item}"
    if step.digested is not None:
        shown = ", ".join(step.tensors[:SHOWN]) + (" ..." if len(step.tensors) > SHOWN else "")
        where = (
            "in it" if step.digested == step.step else f"at step {step.digested}, the next digested"
        )
        yield f"    {len(step.tensors)} of {step.total} tensors differ {where}: {shown}"


def as_json(found: Divergence) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "format": "instella.diverge/1",
        "compared": found.compared,
        "differing": list(found.differing),
        "origins": list(found.origins),
        "absent": list(found.absent),
        "trails": [_trail_json(trail) for trail in found.trails],
    }


def _trail_json(trail: Trail) -> dict[str, Any]:
    step = trail.step
    return {
        "stage": trail.stage,
        "missing": trail.missing,
        "inputs": list(trail.inputs),
        "cause": trail.cause,
        "evidence": [vars(item) for item in trail.evidence],
        "step": step
        and {
            **vars(step),
            "fields": list(step.fields),
            "equal": list(step.equal),
            "tensors": list(step.tensors),
        },
        "figures": [vars(item) for item in trail.figures],
        "files": {
            path: {
                "summary": item.summary,
                "findings": [vars(finding) for finding in item.findings],
            }
            for path, item in trail.files.items()
        },
        "operation": trail.operation,
    }
