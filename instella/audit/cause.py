"""Why two stages with equal inputs made different bytes, as far as the runs say it.

Evidence comes from the identities, which decide the bytes, and, where those are equal, from
the journals, which nobody vouches for. The likely cause is the first in this order that has
evidence: data, seed, setting, numerics class, thread setting, code, library version,
container image, hardware.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from instella.audit.comparators.documents import differing, text
from instella.audit.runs import Run, input_of

DATA, SEED, SETTING = "data", "seed", "setting"
NUMERICS, THREADS, CODE = "numerics class", "thread setting", "code"
LIBRARY, IMAGE, HARDWARE = "library version", "container image", "hardware"
ORDER, UNKNOWN = "data order", "not recorded"
RANK = (DATA, SEED, SETTING, NUMERICS, THREADS, CODE, LIBRARY, IMAGE, HARDWARE, UNKNOWN)
MANY = (DATA, CODE, HARDWARE)
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Journal fields that may change bytes, by the cause they speak for.
_FACTS = {"cpu": HARDWARE, "libc": LIBRARY, "torch": LIBRARY, "python": LIBRARY}
_NEUTRAL = ("ranks", "cores", "system")


@dataclass(frozen=True)
class Evidence:
    """One fact that differs: what kind of cause it speaks for, its name, A's and B's value."""

    cause: str
    name: str
    left: str
    right: str

    def __str__(self) -> str:
        return f"{self.name}: {self.left} | {self.right}"


def evidence(left: Run, right: Run, stage: str) -> list[Evidence]:
    """Everything that differs between two results of one stage, likely causes first."""
    one, other = left.manifests[stage].identity, right.manifests[stage].identity
    found = list(_settings(one, other))
    for role in sorted({*one["inputs"], *other["inputs"]}):
        sides = [str(input_of(run, stage, role) or "no such input")[:16] for run in (left, right)]
        if input_of(left, stage, role) != input_of(right, stage, role):
            found.append(Evidence(DATA, f"input {role}", *sides))
    found += _numerics(one, other)
    found += _code(left, right, str(one.get("code")), str(other.get("code")))
    found += _lock(left, right, str(one.get("lock")), str(other.get("lock")))
    for item in differing(one.get("environments"), other.get("environments"), "lock of"):
        name = item.place.replace(".", " ", 1)
        found.append(Evidence(LIBRARY, name, item.left, item.right))
    if one.get("image") != other.get("image"):
        found.append(Evidence(IMAGE, "image", text(one.get("image")), text(other.get("image"))))
    found += _journals(left, right, stage)
    return sorted(found, key=lambda item: RANK.index(item.cause))


def _settings(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Evidence]:
    for item in differing(one.get("settings", {}), other.get("settings", {}), "setting"):
        name = item.place.rpartition(".")[2]
        is_seed = name.split("[")[0] in ("seed", "seeds", "init_seed")
        is_data = name.split("[")[0] in ("sha256", "revision", "version", "archive", "path")
        cause = SEED if is_seed else DATA if is_data else SETTING
        yield Evidence(cause, item.place.replace("setting.", "setting ", 1), item.left, item.right)


def _numerics(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Evidence]:
    sides = [side.get("numerics") for side in (one, other)]
    if sides[0] == sides[1]:
        return
    known = [side if isinstance(side, dict) else {} for side in sides]
    classes = [text(side.get("class")) for side in known]
    if classes[0] != classes[1]:
        yield Evidence(NUMERICS, "numerics class", *classes)
    for item in differing(known[0].get("pins"), known[1].get("pins"), "variable"):
        name = item.place.rpartition(".")[2]
        cause = THREADS if name in _THREAD_VARIABLES else NUMERICS
        yield Evidence(cause, item.place.replace(".", " ", 1), item.left, item.right)


def _code(left: Run, right: Run, one: str, other: str) -> Iterator[Evidence]:
    if one == other:
        return
    then, now = left.closure(one), right.closure(other)
    if then is None or now is None:
        yield Evidence(CODE, "code (a store does not know its modules)", one[:16], other[:16])
        return
    for name in sorted({*then, *now}):
        sides = [side.get(name) for side in (then, now)]
        if sides[0] != sides[1]:
            shown = [value[:16] if value else "no such module" for value in sides]
            yield Evidence(CODE, f"code {name}", *shown)


def _lock(left: Run, right: Run, one: str, other: str) -> Iterator[Evidence]:
    if one == other:
        return
    then, now = left.packages(one), right.packages(other)
    if then is None or now is None:
        yield Evidence(LIBRARY, "lock (its packages are not at hand)", one[:16], other[:16])
        return
    for name in sorted({*then, *now}):
        sides = [side.get(name, "not locked") for side in (then, now)]
        if sides[0] != sides[1]:
            yield Evidence(LIBRARY, f"package {name}", *sides)
    if then == now:
        yield Evidence(LIBRARY, "files of the same packages", one[:16], other[:16])


def _journals(left: Run, right: Run, stage: str) -> Iterator[Evidence]:
    one, other = left.journal(stage), right.journal(stage)
    if one is None or other is None:
        return
    for name, cause in _FACTS.items():
        sides = [line.get(name) for line in (one, other)]
        if sides[0] != sides[1]:
            yield Evidence(cause, f"journal: {name}", text(sides[0]), text(sides[1]))
    for name in _NEUTRAL:
        sides = [line.get(name) for line in (one, other)]
        if sides[0] != sides[1]:
            yield Evidence(UNKNOWN, f"journal: {name}", text(sides[0]), text(sides[1]))


def likely(found: list[Evidence], first_field: str | None = None) -> str:
    """The likely cause in one or two words.

    Args:
        found: from ``evidence``.
        first_field: first differing field of the step ledger, if there is one: the data
            order shows as a cursor that differs.
    """
    causes = [item.cause for item in found if item.cause != UNKNOWN]
    if first_field == "cursor":
        return (
            ORDER
            if not causes
            else f"{ORDER}, by {'other' if causes[0] in MANY else 'another'} {causes[0]}"
        )
    return causes[0] if causes else UNKNOWN
