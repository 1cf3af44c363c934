"""Reads a YAML tree by the type and the bounds of each dataclass field.

The dataclasses of ``settings.py`` are the schema. A value is read by the type that is
asked for, and where its form means different things to different YAML readers (``1e-3``
and ``yes`` are text to one and not to the other) either the meaning is plain from the
type or the value is refused.
"""

import math
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any

from instella.errors import BadUse
from instella.recipe.nodes import Entries, Items, Node, Scalar, bad_line, shown
from instella.recipe.scalars import BOOLEANS, WANTED, form, found, is_null

Place = tuple[str | int, ...]

MAX_INTEGER = 2**63 - 1


def dotted(place: Place) -> str:
    """``("stages", "sft", "parts", 0)`` as ``stages.sft.parts[0]``."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def suggestion(word: str, known: typing.Iterable[str]) -> str:
    """``did you mean 'x'?``, or the known words."""
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"choose one of: {', '.join(names)}" if names else "there is none to choose"


def without_none(kind: Any) -> tuple[Any, bool]:
    """``X | None`` as (X, True); any other type as (type, False)."""
    if typing.get_origin(kind) not in (UnionType, typing.Union):
        return kind, False
    inner = [item for item in typing.get_args(kind) if item is not NoneType]
    if len(inner) != 1:
        raise TypeError(f"{kind}: settings know no union but with None")
    return inner[0], True


def is_required(item: Field[Any]) -> bool:
    """The field has no default."""
    return item.default is MISSING and item.default_factory is MISSING


@cache
def _kinds(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@dataclass
class Places:
    """Where each setting stands, so that a later check can point at it."""

    file: str
    lines: dict[Place, int] = field(default_factory=dict)

    def written(self, place: Place) -> bool:
        """The file sets this place (rather than leaving it to the default)."""
        return place in self.lines

    def error(self, place: Place, what: str, cure: str) -> BadUse:
        """An error at the line of ``place``, or of what holds it when it is not written."""
        at = place
        while at and at not in self.lines:
            at = at[:-1]
        return bad_line(self.file, self.lines.get(at, 1), f"{dotted(place)} {what}", cure)


class FieldReader:
    """Reads dataclasses out of one file's tree; ``places`` fills as it goes."""

    def __init__(self, file: str) -> None:
        self.places = Places(file)

    def read(self, cls: type, node: Node, place: Place = ()) -> Any:
        """An instance of the dataclass ``cls``; the first fault is raised as BadUse."""
        entries = self._mapping(node, place)
        known = {item.name: item for item in fields(cls)}
        for key in entries.entries:
            if key not in known:
                what = f"unknown setting {shown(dotted((*place, key)))}"
                raise bad_line(self.places.file, entries.lines[key], what, suggestion(key, known))
        for item in known.values():
            if is_required(item) and item.name not in entries.entries:
                at = self.places.lines.get(place, entries.line)
                what = f"'{dotted((*place, item.name))}' is missing"
                about = f"add it ({item.metadata['about']})"
                raise bad_line(self.places.file, at, what, about)
        kinds = _kinds(cls)
        values: dict[str, Any] = {}
        for key, child in entries.entries.items():
            at_place = (*place, key)
            self.places.lines[at_place] = entries.lines[key]
            kind, nullable = without_none(kinds[key])
            if is_null(child) and (nullable or known[key].default is None):
                values[key] = None
            else:
                values[key] = self._value(kind, known[key].metadata, child, at_place)
        return cls(**values)

    def _value(self, kind: Any, bounds: Mapping[str, Any], node: Node, place: Place) -> Any:
        if is_null(node):
            cure = "write [] for none" if typing.get_origin(kind) is tuple else "write one"
            raise self.places.error(place, "has no value", cure)
        if is_dataclass(kind):
            return self.read(typing.cast(type, kind), node, place)
        origin = typing.get_origin(kind)
        if origin is tuple:
            inner = typing.get_args(kind)[0]
            return tuple(
                self._value(inner, bounds, child, at) for at, child in self._items(node, place)
            )
        if origin is dict:
            inner = typing.get_args(kind)[1]
            if inner is Any:
                return self._plain(self._mapping(node, place), place)
            return {
                key: self._value(inner, bounds, child, (*place, key))
                for key, child in self._entries(node, place)
            }
        return self._scalar(kind, bounds, node, place)

    def _mapping(self, node: Node, place: Place) -> Entries:
        if isinstance(node, Entries):
            return node
        cure = "indent its settings below it as 'key: value' lines"
        raise self.places.error(place, f"must be a mapping, not {found(node)}", cure)

    def _items(self, node: Node, place: Place) -> list[tuple[Place, Node]]:
        if not isinstance(node, Items):
            what = f"must be a list, not {found(node)}"
            raise self.places.error(place, what, "write [a, b] or one '- item' a line")
        places: list[tuple[Place, Node]] = []
        for index, child in enumerate(node.items):
            self.places.lines[(*place, index)] = child.line
            places.append(((*place, index), child))
        return places

    def _entries(self, node: Node, place: Place) -> list[tuple[str, Node]]:
        mapping = self._mapping(node, place)
        for key, line in mapping.lines.items():
            self.places.lines[(*place, key)] = line
        return list(mapping.entries.items())

    def _plain(self, node: Node, place: Place) -> Any:
        if isinstance(node, Entries):
            return {
                key: self._plain(child, (*place, key)) for key, child in self._entries(node, place)
            }
        if isinstance(node, Items):
            return [self._plain(child, at) for at, child in self._items(node, place)]
        if is_null(node):
            return None
        looks = form(node)
        if looks == "ambiguous":
            what = f"is {shown(node.text)}, which YAML readers take for different things"
            raise self.places.error(place, what, "put text in quotes; write true or false")
        kinds = {"boolean": bool, "whole number": int, "text": str}
        return self._scalar(kinds.get(looks, float), {}, node, place)

    def _scalar(self, kind: type, bounds: Mapping[str, Any], node: Node, place: Place) -> Any:
        if not isinstance(node, Scalar):
            cure = f"write {WANTED[kind]}"
            raise self.places.error(place, f"must be {WANTED[kind]}, not {found(node)}", cure)
        value: Any
        if kind is str:
            value = self._text(node, place)
        elif kind is bool:
            value = self._boolean(node, place)
        else:
            value = self._number(kind, node, place)
        return self._bounded(value, bounds, place)

    def _text(self, node: Scalar, place: Place) -> str:
        if not node.given and form(node) != "text":
            cure = f'put it in quotes: "{shown(node.text)[1:-1]}"'
            raise self.places.error(place, f"must be text, not {found(node)}", cure)
        if any("\ud800" <= character <= "\udfff" for character in node.text):
            raise self.places.error(place, "holds half a surrogate pair", "write the character")
        return node.text

    def _boolean(self, node: Scalar, place: Place) -> bool:
        if node.text in BOOLEANS and (node.plain or node.given):
            return BOOLEANS[node.text]
        what = f"must be true or false, not {found(node)}"
        raise self.places.error(place, what, "write true or false, without quotes")

    def _number(self, kind: type, node: Scalar, place: Place) -> int | float:
        looks = form(node)
        allowed = ("whole number",) if kind is int else ("whole number", "number", "not finite")
        if looks not in allowed:
            example = "8" if kind is int else "0.001"
            cure = f"write {WANTED[kind]} such as {example}, without quotes"
            raise self.places.error(place, f"must be {WANTED[kind]}, not {found(node)}", cure)
        if kind is int:
            if len(node.text) > 20 or abs(int(node.text)) > MAX_INTEGER:
                raise self.places.error(place, "is beyond 64 bits", "write a smaller number")
            return int(node.text)
        # Adding zero turns -0.0 into 0.0: one value, one identity.
        value = float("nan") if looks == "not finite" else float(node.text) + 0.0
        if not math.isfinite(value):
            raise self.places.error(place, f"is {shown(node.text)}", "write a finite number")
        return value

    def _bounded(self, value: Any, bounds: Mapping[str, Any], place: Place) -> Any:
        choices = bounds.get("choices")
        if choices and value not in choices:
            raise self.places.error(place, f"is {shown(value)}", suggestion(value, choices))
        if "at_least" in bounds and value < bounds["at_least"]:
            cure = f"write {bounds['at_least']} or more"
            raise self.places.error(place, f"is {value}, too small", cure)
        if "more_than" in bounds and not value > bounds["more_than"]:
            cure = f"write more than {bounds['more_than']}"
            raise self.places.error(place, f"is {value}, too small", cure)
        if "at_most" in bounds and value > bounds["at_most"]:
            cure = f"write {bounds['at_most']} or less"
            raise self.places.error(place, f"is {value}, too large", cure)
        return value
