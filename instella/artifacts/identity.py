"""The key under which a stage's result is looked up.

Identity holds everything that may change the bytes: stage and kind, every setting, the
code the stage uses, the lock file, image digest, numerics class with its pinned variables
and the content of each input. Paths, hosts, ranks and times are placement
and never enter. Nothing here imports torch or numpy: Snakemake calls it on every start.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from instella import numerics
from instella.artifacts.code import CodeIndex
from instella.canonical import json_bytes, sha256_bytes
from instella.errors import BadUse
from instella.recipe.graph import Stage

FORMAT = "instella.identity/1"
PACKAGE_FOLDER = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Toolchain:
    """What of this tree and of the numerics class enters every identity.

    Attributes:
        code: code hashes of the package.
        lock: hash of the lock file.
        numerics: name of the numerics class.
        images: stage to the digest of the container image that runs it; on the host without.
    """

    code: CodeIndex
    lock: str
    numerics: str
    images: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def here(
        cls,
        numerics_class: str,
        images: Mapping[str, str] = MappingProxyType({}),
        cache: Path | None = None,
    ) -> "Toolchain":
        """The toolchain of the running package; ``cache`` as for ``CodeIndex``."""
        return cls(CodeIndex(PACKAGE_FOLDER, cache), lock_hash(), numerics_class, images)


def lock_file(package: Path = PACKAGE_FOLDER) -> Path:
    """The lock file of the project that holds the package.

    Raises:
        BadUse: there is none, for example because the package was installed elsewhere.
    """
    path = package.parent / "requirements" / "run.lock"
    if not path.is_file():
        raise BadUse(f"{path}: no lock file; run from a complete copy of the project")
    return path


def environment_lock(name: str, package: Path = PACKAGE_FOLDER) -> Path:
    """The lock file of an environment beside the kit's own."""
    return package.parent / "requirements" / "environments" / f"{name}.lock"


def lock_hash(path: Path | None = None) -> str:
    """SHA-256 of the lock file without comments and blank lines."""
    text = (path or lock_file()).read_text(encoding="utf-8")
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()]
    kept = [line for line in lines if line]
    return sha256_bytes("\n".join(kept).encode("utf-8"))


def settings_json(stage: Stage) -> dict[str, Any]:
    """The stage's settings as plain JSON values, defaults included.

    Raises:
        BadUse: a value of a type that has no canonical form, with its place.
    """
    return {name: _plain(value, f"{stage.name}.{name}") for name, value in stage.settings.items()}


def _plain(value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _plain(getattr(value, name), f"{where}.{name}") for name in names}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise BadUse(f"{where}: a key is not text; settings need names")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if value is None or type(value) in (str, int, bool):
        return value
    if type(value) is float and value - value == 0:
        return value
    raise BadUse(f"{where}: {type(value).__name__} {value!r} has no canonical form in a setting")


def identity(stage: Stage, toolchain: Toolchain, contents: Mapping[str, str]) -> dict[str, Any]:
    """Identity of a stage whose inputs have these contents.

    Args:
        stage: node of the graph.
        toolchain: code, lock, numerics class and images.
        contents: role to content of the input's manifest, for every role of the stage.
    """
    if set(contents) != set(stage.inputs):
        raise BadUse(f"{stage.name}: needs inputs {sorted(stage.inputs)}, got {sorted(contents)}")
    return {**_without_inputs(stage, toolchain), "inputs": dict(sorted(contents.items()))}


def _without_inputs(stage: Stage, toolchain: Toolchain) -> dict[str, Any]:
    plain = {
        "format": FORMAT,
        "stage": stage.name,
        "kind": stage.kind,
        "settings": settings_json(stage),
    }
    if stage.is_imported:
        # No code, lock or numerics class of this tree made it.
        return plain
    others = {name: lock_hash(environment_lock(name)) for name in stage.environments}
    return {
        **plain,
        **({"environments": others} if others else {}),
        "code": toolchain.code.code_hash(stage.kind),
        "lock": toolchain.lock,
        "image": toolchain.images.get(stage.name),
        "numerics": {
            "class": toolchain.numerics,
            "pins": dict(numerics.pins(toolchain.numerics)),
        },
    }


def identity_key(value: Mapping[str, Any]) -> str:
    """SHA-256 of the identity's canonical JSON, 64 hex digits."""
    return sha256_bytes(json_bytes(dict(value)))


def fingerprint(stage: Stage, toolchain: Toolchain) -> str:
    """SHA-256 of everything in the identity except the contents of the inputs.

    For a workflow engine that follows the inputs itself but cannot see settings by name,
    imported code or the lock.
    """
    value = {**_without_inputs(stage, toolchain), "inputs": dict(stage.inputs)}
    return sha256_bytes(json_bytes(value))


def fingerprints(graph: Mapping[str, Stage], toolchain: Toolchain) -> dict[str, str]:
    """``fingerprint`` of every stage of a graph, by name."""
    return {name: fingerprint(stage, toolchain) for name, stage in graph.items()}
