"""Which published statement covers which setting of a recipe.

A path of ``sources.yaml`` covers the setting of that name and all below it. Of several
that cover a setting, the longest wins, then the one with fewer ``*``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instella.recipe.leaves import steps, value_at
from instella.recipe.published import Group, Publication

Place = tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """Where the value of a setting comes from.

    Attributes:
        path: as ``sources.yaml`` writes it, prefix included.
        sources: codes of the legend, the deciding one first.
        where: place in the first source.
        confidence: one of ``published.CONFIDENCES``.
        note: what has to be known.
        pinned: whether ``value`` is published.
        value: what is published.
    """

    path: str
    sources: tuple[str, ...]
    where: str
    confidence: str
    note: str
    pinned: bool
    value: Any


def origins(groups: tuple[Group, ...], legend: Mapping[str, Publication]) -> list[Origin]:
    """The groups of a file as one origin for each path."""
    found = []
    for group in groups:
        confidence = group.confidence or legend[group.sources[0]].confidence
        values = group.values or {}
        paths = [(path, True, value) for path, value in values.items()]
        paths += [(path, False, None) for path in group.settings]
        for path, pinned, value in paths:
            whole = f"{group.within}.{path}" if group.within and path else group.within or path
            found.append(
                Origin(whole, group.sources, group.where, confidence, group.note, pinned, value)
            )
    return found


@dataclass(frozen=True)
class Coverage:
    """Settings and origins matched.

    Attributes:
        origin: setting -> its origin, where there is one.
        bare: settings that have a value and no origin.
        orphans: origins that are no setting's origin.
        ambiguous: settings with two origins of the same rank.
    """

    origin: dict[str, Origin]
    bare: tuple[str, ...]
    orphans: tuple[Origin, ...]
    ambiguous: tuple[str, ...]


def cover(settings: Mapping[str, Any], known: list[Origin]) -> Coverage:
    """Match every setting with its origin.

    Args:
        settings: path to value. A null or an empty list without an origin is a setting
            that does not apply, and counts as nothing.
        known: from ``origins``.
    """
    exact: dict[Place, list[Origin]] = {}
    starred: dict[int, list[tuple[Place, Origin]]] = {}
    for origin in known:
        pattern = steps(origin.path)
        if _stars(pattern):
            starred.setdefault(len(pattern), []).append((pattern, origin))
        else:
            exact.setdefault(pattern, []).append(origin)
    chosen: dict[str, Origin] = {}
    bare, ambiguous = [], []
    for path, value in settings.items():
        best = _best(steps(path), exact, starred)
        if best:
            chosen[path] = best[0]
            ambiguous += [path] if len(best) > 1 else []
        elif value not in (None, [], (), {}):
            bare.append(path)
    used = {id(origin) for origin in chosen.values()}
    orphans = tuple(origin for origin in known if id(origin) not in used)
    return Coverage(chosen, tuple(bare), orphans, tuple(ambiguous))


def _best(
    place: Place,
    exact: Mapping[Place, list[Origin]],
    starred: Mapping[int, list[tuple[Place, Origin]]],
) -> list[Origin]:
    """The origins of the highest rank that cover a place."""
    for length in range(len(place), 0, -1):
        if place[:length] in exact:
            return exact[place[:length]]
        fits = [pair for pair in starred.get(length, ()) if _covers(pair[0], place)]
        if fits:
            fewest = min(_stars(pattern) for pattern, _ in fits)
            return [origin for pattern, origin in fits if _stars(pattern) == fewest]
    return []


def mismatches(values: Any, coverage: Coverage) -> list[str]:
    """One line for each published value that the recipe does not hold.

    Args:
        values: the recipe as nested dicts.
        coverage: of its settings.
    """
    lines = []
    for path, origin in coverage.origin.items():
        if not origin.pinned:
            continue
        wanted = _tail(origin.value, steps(path)[len(steps(origin.path)) :])
        found = value_at(values, path)
        if not _same(wanted, found):
            lines.append(f"{path}: published {_words(wanted)} ({_cited(origin)}), found {found!r}")
    for origin in {id(item): item for item in coverage.origin.values() if item.pinned}.values():
        lines += _shorter(values, origin)
    return lines


_ABSENT = object()


def _tail(value: Any, below: Place) -> Any:
    """The part of a published value that belongs to a setting so many steps below it."""
    for step in below:
        try:
            value = value[int(step[1:-1])] if step.startswith("[") else value[step]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return value


def _shorter(values: Any, origin: Origin) -> list[str]:
    """A published list that the recipe cut short, which no single value shows."""
    if "*" in origin.path or not isinstance(origin.value, list):
        return []
    found = len(value_at(values, origin.path))
    if found >= len(origin.value):
        return []
    return [
        f"{origin.path}: published {len(origin.value)} entries ({_cited(origin)}), found {found}"
    ]


def _same(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, list):
        return list(found) == wanted if isinstance(found, (list, tuple)) else False
    return bool(wanted == found)


def _words(value: Any) -> str:
    return "nothing" if value is _ABSENT else repr(value)


def _cited(origin: Origin) -> str:
    return f"{', '.join(origin.sources)} {origin.where}".rstrip()


def _covers(pattern: Place, place: Place) -> bool:
    return all(
        want == step or want == "*" or (want == "[*]" and step.startswith("["))
        for want, step in zip(pattern, place, strict=False)
    )


def _stars(pattern: Place) -> int:
    return sum(step in ("*", "[*]") for step in pattern)
