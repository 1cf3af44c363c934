"""Compares the identity of a result with the one this tree would give, field by field."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from instella.artifacts.identity import Toolchain, identity, settings_json
from instella.artifacts.manifest import Manifest
from instella.artifacts.store import Store
from instella.artifacts.values import NOTHING, differing_values
from instella.recipe.graph import Stage
from instella.terminal import plain

ABSENT = "nothing"


@dataclass(frozen=True)
class Difference:
    """A field of an identity, by its path, with its value then and now as text."""

    field: str
    then: str
    now: str

    def __str__(self) -> str:
        kind, _, name = plain(self.field).partition(".")
        then, now = plain(self.then), plain(self.now)
        if kind == "settings":
            return f"setting {name} changed from {then} to {now}"
        if kind == "inputs":
            return f"the content of input {name} changed"
        if kind == "code":
            change = {self.then: "was added", self.now: "was removed"}.get(ABSENT, "changed")
            return f"code {name} {change}" if name else "the code changed"
        names = {"lock": "the lock file", "image": "the container image"}
        if kind in names:
            return f"{names[kind]} changed"
        if kind == "environments":
            return f"the lock of environment {name} changed"
        return f"{plain(self.field)} changed from {then} to {now}"


def origin_of(stage: Stage) -> str:
    """The origin that a result of the stage has: one of ``manifest.ORIGINS``."""
    return "imported" if stage.is_imported else "computed"


def differences(
    manifest: Manifest,
    stage: Stage,
    toolchain: Toolchain,
    store: Store,
    contents: Mapping[str, str] | None = None,
) -> list[Difference]:
    """What makes the identity of a result differ from that of the stage in this tree.

    Args:
        manifest: of the result.
        stage: the stage as the recipe now has it.
        toolchain: of this tree.
        store: knows of which modules an earlier code hash was made.
        contents: role to content of the inputs now; None leaves inputs out.
    """
    then = dict(manifest.identity)
    now = identity(stage, toolchain, contents or dict.fromkeys(stage.inputs, ""))
    if contents is None:
        now["inputs"] = then["inputs"]
    if then.get("code") != now.get("code"):
        modules = store.code_modules(str(then.get("code")))
        if modules is not None:
            then["code"], now["code"] = modules, toolchain.code.closure(stage.kind)
    return list(_walk(then, now))


def first_other(
    manifests: Mapping[str, Manifest], graph: Mapping[str, Stage], numerics: str
) -> str | None:
    """The first stage whose result was not made by these settings, in the graph's order, in words.

    Code, lock and image do not count: they tell who made a result, not what it is.

    Args:
        manifests: of every stage of the graph.
        graph: of the recipe.
        numerics: numerics class of the recipe.
    """
    for name, stage in graph.items():
        manifest = manifests[name]
        if manifest.origin != origin_of(stage):
            return f"{name} is {manifest.origin}"
        contents = {role: manifests[source].content for role, source in stage.inputs.items()}
        now = {"kind": stage.kind, "settings": settings_json(stage), "inputs": contents}
        then = {key: manifest.identity.get(key) for key in now}
        if not stage.is_imported:
            now["numerics class"] = numerics
            held = manifest.identity.get("numerics")
            then["numerics class"] = held.get("class") if isinstance(held, Mapping) else held
        for difference in _walk(then, now):
            return f"{name}: {difference}"
    return None


def _walk(then: Any, now: Any) -> Iterator[Difference]:
    for place, one, other in differing_values(then, now):
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
        yield Difference("".join(parts).removeprefix("."), _text(one), _text(other))


def _text(value: Any) -> str:
    return ABSENT if value is NOTHING else json.dumps(value, sort_keys=True, ensure_ascii=False)
