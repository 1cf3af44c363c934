"""Compares the identity of a result with the one this tree would give, field by field."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from instella.artifacts.identity import Toolchain, identity
from instella.artifacts.manifest import Manifest
from instella.artifacts.store import Store
from instella.canonical import sha256_bytes
from instella.recipe.graph import Stage

ABSENT = "nothing"


@dataclass(frozen=True)
class Difference:
    """A field of an identity, by its path, with its value then and now as text."""

    field: str
    then: str
    now: str

    def __str__(self) -> str:
        kind, _, name = self.field.partition(".")
        if kind == "settings":
            return f"setting {name} changed from {self.then} to {self.now}"
        if kind == "inputs":
            return f"the content of input {name} changed"
        if kind == "code":
            change = {self.then: "was added", self.now: "was removed"}.get(ABSENT, "changed")
            return f"code {name} {change}" if name else "the code changed"
        names = {"lock": "the lock file", "image": "the container image"}
        if kind in names:
            return f"{names[kind]} changed"
        return f"{self.field} changed from {self.then} to {self.now}"


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
    if then.get("code") != now["code"]:
        modules = _code_record(store, str(then.get("code")))
        if modules is not None:
            then["code"], now["code"] = modules, toolchain.code.closure(stage.kind)
    return list(_walk("", then, now))


def _walk(field: str, then: Any, now: Any) -> Iterator[Difference]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in sorted({*then, *now}):
            place = f"{field}.{key}" if field else key
            yield from _walk(place, then.get(key, _NOTHING), now.get(key, _NOTHING))
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for index, (left, right) in enumerate(zip(then, now, strict=True)):
            yield from _walk(f"{field}[{index}]", left, right)
    elif type(then) is not type(now) or then != now:
        yield Difference(field, _text(then), _text(now))


class _Nothing:
    """Stands for a field that is not there."""


_NOTHING = _Nothing()


def _text(value: Any) -> str:
    return ABSENT if value is _NOTHING else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _code_record(store: Store, code_hash: str) -> dict[str, str] | None:
    path = store.root / "code" / code_hash
    if not code_hash.isalnum() or not path.is_file():
        return None
    data = path.read_bytes()
    return json.loads(data) if sha256_bytes(data) == code_hash else None
