"""``instella diff``: settings, data, code, lock and results of two runs, side by side."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from instella.audit.cause import CODE, DATA, IMAGE, LIBRARY, NUMERICS, THREADS, Evidence, evidence
from instella.audit.comparators.documents import differing, read
from instella.audit.comparators.finding import Finding
from instella.audit.runs import Run

RESULTS = ("results", "results.json")
SECTIONS = ("settings", "data", "code", "lock", "numerics", "results")
SHOWN = 12
_SECTION = {
    CODE: "code", LIBRARY: "lock", IMAGE: "lock", NUMERICS: "numerics", THREADS: "numerics",
}  # fmt: skip


@dataclass
class Item:
    """One thing that differs, and the stages that say so."""

    name: str
    left: str
    right: str
    stages: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        many = len(self.stages)
        where = "" if not many else f"  ({self.stages[0]}{f' and {many - 1} more' * (many > 1)})"
        return f"{self.name}: {self.left} | {self.right}{where}"


def difference(left: Run, right: Run) -> dict[str, list[Item]]:
    """Section to what differs in it; what several stages say alike stands once.

    Inputs that differ follow from the stages that made them and are left out; of the data
    only what a source itself says and holds counts.
    """
    found: dict[str, dict[tuple[str, str, str], Item]] = {name: {} for name in SECTIONS}

    def add(section: str, name: str, one: str, other: str, stage: str | None = None) -> None:
        item = found[section].setdefault((name, one, other), Item(name, one, other))
        if stage is not None:
            item.stages.append(stage)

    for name in dict.fromkeys((*left.manifests, *right.manifests)):
        sides = [run.manifests.get(name) for run in (left, right)]
        if sides[0] is None or sides[1] is None:
            state = ["no result" if side is None else "a result" for side in sides]
            add("results", f"stage {name}", *state)
            continue
        for item in evidence(left, right, name):
            section = _section(item, sides[0].kind)
            if section is not None:
                add(section, item.name.removeprefix("setting "), item.left, item.right, name)
        if sides[0].kind == "source" and sides[0].content != sides[1].content:
            add("data", f"content of {name}", sides[0].content[:16], sides[1].content[:16])
    for finding in _results(left, right):
        add("results", finding.place, finding.left, finding.right)
    return {name: list(items.values()) for name, items in found.items()}


def _section(item: Evidence, kind: str) -> str | None:
    if item.name.startswith("journal: "):
        return None
    if item.cause == DATA:
        return "data" if kind == "source" else None
    return _SECTION.get(item.cause, "settings")


def _results(left: Run, right: Run) -> Iterator[Finding]:
    """Figures of the results table; the ends of intervals follow the values and are left out."""
    stage, file = RESULTS
    if any(
        stage not in run.manifests or file not in run.manifests[stage].files
        for run in (left, right)
    ):
        return
    one, other = (read(run.file(stage, file)) for run in (left, right))
    for found in differing(one, other, "results"):
        if found.place.endswith(".value"):
            place = found.place.removeprefix("results.").removesuffix(".value")
            yield Finding(place, found.left, found.right)


def lines(left: Run, right: Run, found: dict[str, list[Item]]) -> Iterator[str]:
    """What a person reads: A on the left, B on the right."""
    same = sum(
        name in right.manifests and right.manifests[name].content == item.content
        for name, item in left.manifests.items()
    )
    yield f"root: {left.root[:16]} | {right.root[:16]}"
    yield f"stages: {len(left.manifests)} | {len(right.manifests)}, {same} with equal content"
    for section, items in found.items():
        if not items:
            yield f"{section}: equal"
            continue
        yield f"{section}: {len(items)} differ"
        for item in items[:SHOWN]:
            yield f"  {item}"
        if len(items) > SHOWN:
            yield f"  and {len(items) - SHOWN} more"


def as_json(left: Run, right: Run, found: dict[str, list[Item]]) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "format": "instella.diff/1",
        "roots": [left.root, right.root],
        **{name: [vars(item) for item in items] for name, items in found.items()},
    }
