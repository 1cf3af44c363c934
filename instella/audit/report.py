"""The answer of an audit, for people and as JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from instella.artifacts.check import DIFFERS, MISSING, SHOWN, Fault
from instella.audit.reexecute import EQUAL, NOT_RUN, Outcome
from instella.audit.sample import Cheat, Coverage, cheats, needed
from instella.audit.verify import Findings, as_json
from instella.prove.recorded import Compared

CONFIDENCE = 0.95
SHARE = 0.01


@dataclass(frozen=True)
class Sampled:
    """A sample that was computed again.

    Attributes:
        seed: of the draw.
        outcomes: one a unit.
        coverage: how much of the run that is.
    """

    seed: int
    outcomes: list[Outcome]
    coverage: Coverage

    @property
    def done(self) -> int:
        """Units computed, with equal bytes or not."""
        return sum(outcome.state != NOT_RUN for outcome in self.outcomes)

    @property
    def chances(self) -> list[Cheat]:
        """How likely cheats of several sizes would have been in the sample."""
        return cheats(self.coverage.units[0], self.done)


def is_clean(faults: list[Fault], sampled: Sampled | None, compared: Compared | None) -> bool:
    """No fault, no drawn unit that was not run, and no root but the recorded one."""
    is_other = compared is not None and compared.is_other
    return (
        not faults and not is_other and (sampled is None or sampled.done == len(sampled.outcomes))
    )


def fault_lines(faults: list[Fault]) -> Iterator[str]:
    """One line a fault; what differs from the tree, or is missing, in many stages stands once."""
    alike: dict[tuple[str, ...], list[Fault]] = {}
    for fault in faults:
        if fault.kind in (DIFFERS, MISSING):
            alike.setdefault((fault.kind, fault.file, fault.expected, fault.found), []).append(
                fault
            )
    for fault in faults:
        group = alike.get((fault.kind, fault.file, fault.expected, fault.found), [])
        if len(group) < 2:
            yield str(fault)
        elif fault is group[0]:
            names = ", ".join(item.stage for item in group[:SHOWN])
            more = len(group) - SHOWN
            names += f" and {more} more" if more > 0 else ""
            yield str(fault).replace(fault.stage, f"{len(group)} stages ({names})", 1)


def sample_lines(sampled: Sampled) -> Iterator[str]:
    """What was computed again, how much of the run that is, and what it proves."""
    for outcome in sampled.outcomes:
        tail = f": {outcome.detail}" if outcome.detail else ""
        yield f"{outcome.state}: {outcome.unit}{tail}"
    found, total = sampled.coverage, sampled.coverage.units[0]
    equal = sum(outcome.state == EQUAL for outcome in sampled.outcomes)
    yield (
        f"sample of seed {sampled.seed}: {sampled.done} of {total} units computed again, {equal} "
        f"equal; stages {_share(*found.stages)}, training steps {_share(*found.steps)}, compute "
        f"{_percent(found.seconds[1], found.seconds[0])} (by the journals' seconds)"
    )
    for chance in sampled.chances:
        yield (
            f"a cheat in {chance.units} of {total} units ({chance.share:.1%}) is in such a sample "
            f"with probability {chance.probability:.3f}"
        )
    false = max(1, round(SHARE * total))
    yield (
        f"to catch {false} of {total} with probability {CONFIDENCE}: "
        f"--sample {needed(total, false, CONFIDENCE)}"
    )


def _share(total: int, done: int) -> str:
    return f"{done} of {total} ({_percent(done, total)})"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def document(
    recipe: str, findings: Findings, faults: list[Fault], sampled: Sampled | None,
    imported: list[str], compared: Compared | None, places: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """The whole answer as plain values; without times and places, so it is reproducible.

    Args:
        recipe: its name.
        findings: what reading told.
        faults: those and what computing again added.
        sampled: what was computed again, if anything was.
        imported: stages that stand for themselves.
        compared: with the recorded root, if there is one and nothing is at fault.
        places: path of this machine to the word that stands for it.
    """
    value = _document(recipe, findings, faults, sampled, imported, compared)
    return dict(_placeless(value, sorted(places.items(), key=lambda item: -len(item[0]))))


def _placeless(value: Any, places: list[tuple[str, str]]) -> Any:
    """The same with words for paths, the longest path first."""
    if isinstance(value, dict):
        return {key: _placeless(item, places) for key, item in value.items()}
    if isinstance(value, list):
        return [_placeless(item, places) for item in value]
    if isinstance(value, str):
        for path, word in places:
            value = value.replace(path, word)
        # A name that is not UTF-8 has no form in JSON; it stands as Python writes it.
        value = value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def _document(
    recipe: str, findings: Findings, faults: list[Fault], sampled: Sampled | None,
    imported: list[str], compared: Compared | None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "format": "instella.audit/1",
        "recipe": recipe,
        "root": findings.root,
        "clean": is_clean(faults, sampled, compared),
        "recorded": None if compared is None else compared.text,
        "faults": [as_json(fault) for fault in faults],
        "notes": findings.notes,
        "imported": imported,
        "licences": findings.licences,
        "read": {"files": findings.files, "bytes": findings.size},
        "sample": None if sampled is None else _sample_json(sampled),
    }


def _sample_json(sampled: Sampled) -> Mapping[str, Any]:
    found = sampled.coverage
    units = [
        {
            "stage": outcome.unit.stage,
            "start": outcome.unit.start,
            "end": outcome.unit.end,
            "first": outcome.first,
            "state": outcome.state,
            "detail": outcome.detail,
        }
        for outcome in sampled.outcomes
    ]
    return {
        "seed": sampled.seed,
        "units": units,
        "coverage": {
            name: {"total": total, "done": done}
            for name, (total, done) in (
                ("units", found.units), ("stages", found.stages), ("steps", found.steps),
                ("journal_seconds", found.seconds),
            )
        },
        "probabilities": [vars(chance) for chance in sampled.chances],
    }  # fmt: skip
