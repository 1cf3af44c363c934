"""Hash of the code that a stage really uses.

The closure of a stage is its module and every module of the package that it imports, at
module level or inside functions, found without running anything. A module counts as its
syntax tree without docstrings, so comments and blank lines change nothing. What cannot be
followed (imports whose name is made at run time) is refused rather than missed.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from instella.artifacts import syntax
from instella.artifacts.syntax import PACKAGE, ModuleFacts
from instella.canonical import json_bytes, sha256_bytes, sha256_file, write_bytes
from instella.errors import BadUse

# These reach no artifact: the recipe's whole effect is the settings, which the identity
# holds, and the others only run stages, report on them or name errors.
EXCLUDED = tuple(f"{PACKAGE}.{name}" for name in ("recipe", "artifacts", "progress", "errors"))
CACHE_NAME = "code.json"
CACHE_ENTRIES = 4096


def source_digest(package: Path) -> str:
    """SHA-256 of the names and bytes of all Python files of a package folder, as they are.

    Quick, and also another one when only a comment changes, unlike a code hash.
    """
    files = sorted(path for path in package.rglob("*.py") if path.is_file())
    named = {path.relative_to(package).as_posix(): sha256_file(path) for path in files}
    return sha256_bytes(json_bytes(named))


class CodeIndex:
    """Code hashes of one package folder.

    Args:
        package: folder of the package, the one named ``instella``.
        cache: folder for facts of files already parsed, keyed by the SHA-256 of their
            bytes. A damaged or missing cache costs time only.
    """

    def __init__(self, package: Path, cache: Path | None = None) -> None:
        self._package = package
        self._cache_file = cache / CACHE_NAME if cache is not None else None
        self._cached: dict[str, ModuleFacts] | None = None
        self._fresh = False
        self._modules: dict[str, tuple[ModuleFacts, bool]] = {}
        self._closures: dict[str, dict[str, str]] = {}
        self._needs: dict[str, list[str]] = {}
        self._files: dict[str, Path | None] = {}

    def code_hash(self, kind: str) -> str:
        """SHA-256 over the closure of ``instella.stages.<kind>``.

        Raises:
            BadUse: no such stage module, or an import that cannot be followed.
        """
        return sha256_bytes(json_bytes(self.closure(kind)))

    def closure(self, kind: str) -> dict[str, str]:
        """Module name to hash of its code, and data file to hash of its bytes."""
        if kind not in self._closures:
            self._closures[kind] = self._walk(f"{PACKAGE}.stages.{kind}")
            self._save_cache()
        return self._closures[kind]

    def _walk(self, start: str) -> dict[str, str]:
        if self._file(start) is None:
            raise BadUse(f"{start}: the package has no such module for a stage to run")
        found: dict[str, str] = {}
        waiting = self._parts(start)
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            facts, is_package = self._facts(name)
            if facts.dynamic:
                raise BadUse(
                    f"{self._file(name)}: {facts.dynamic[0]}: the code hash cannot follow it; "
                    "import by a fixed name"
                )
            found[name] = facts.digest
            if facts.reads_files:
                found |= self._data_files(name, is_package)
            # Most modules are part of most closures.
            if name not in self._needs:
                self._needs[name] = self._parts(*self._imported(name, facts, is_package))
            waiting += self._needs[name]
        return dict(sorted(found.items()))

    def _parts(self, *names: str) -> list[str]:
        """Modules and the packages that hold them, without those that count for nothing."""
        parts = dict.fromkeys(part for name in names for part in _with_parents(name))
        return [part for part in parts if not _excluded(part) and self._file(part) is not None]

    def _imported(self, importer: str, facts: ModuleFacts, is_package: bool) -> Iterator[str]:
        for level, module, names in facts.imports:
            target = _absolute(importer, is_package, level, module)
            if target.split(".")[0] != PACKAGE or _excluded(target):
                continue
            if self._file(target) is None and not self._folder(target).is_dir():
                raise BadUse(f"{self._file(importer)}: imports {target}, which does not exist")
            if "*" in names:
                raise BadUse(
                    f"{self._file(importer)}: imports * from {target}: the code hash cannot "
                    "follow it; import names"
                )
            yield target
            for name in names:
                if self._file(f"{target}.{name}") is not None:
                    yield f"{target}.{name}"
        for name in facts.mentioned:
            if self._file(name) is not None:
                yield name

    def _folder(self, name: str) -> Path:
        return self._package.joinpath(*name.split(".")[1:])

    def _file(self, name: str) -> Path | None:
        if name not in self._files:
            folder = self._folder(name)
            choices = (folder / "__init__.py", folder.parent / f"{folder.name}.py")
            self._files[name] = next((path for path in choices if path.is_file()), None)
        return self._files[name]

    def _data_files(self, name: str, is_package: bool) -> dict[str, str]:
        folder = self._folder(name) if is_package else self._folder(name).parent
        files = {}
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(self._package).parts
            hidden = any(part.startswith((".", "__pycache__")) for part in parts)
            if path.is_file() and not hidden and not path.name.endswith((".py", ".pyc", "~")):
                files["/".join((PACKAGE, *parts))] = sha256_file(path)
        return files

    def _facts(self, name: str) -> tuple[ModuleFacts, bool]:
        if name not in self._modules:
            path = self._file(name)
            if path is None:
                raise BadUse(f"{name}: the package has no such module")
            data = path.read_bytes()
            key = sha256_bytes(data)
            cached = self._load_cache()
            if key not in cached:
                cached[key] = syntax.module_facts(data, str(path))
                self._fresh = True
            self._modules[name] = (cached[key], path.name == "__init__.py")
        return self._modules[name]

    def _load_cache(self) -> dict[str, ModuleFacts]:
        if self._cached is None:
            self._cached = {}
            if self._cache_file is not None and self._cache_file.is_file():
                self._cached = _parse_cache(self._cache_file.read_bytes())
        return self._cached

    def _save_cache(self) -> None:
        if self._cache_file is None or not self._fresh or self._cached is None:
            return
        entries = dict(list(self._cached.items())[-CACHE_ENTRIES:])
        body = json_bytes({key: asdict(facts) for key, facts in entries.items()})
        temporary = self._cache_file.with_name(f".{CACHE_NAME}.{os.getpid()}")
        # A read-only or full disk must not stop a dry run for the sake of a cache.
        with suppress(OSError):
            self._cache_file.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(temporary, _cache_head(body) + body)
            temporary.replace(self._cache_file)
        self._fresh = False


def _cache_head(body: bytes) -> bytes:
    """First line of the cache: binds it to this parser, this Python and its own bytes."""
    parser = sha256_file(Path(syntax.__file__)) + sys.version
    return sha256_bytes(parser.encode() + body).encode() + b"\n"


def _parse_cache(data: bytes) -> dict[str, ModuleFacts]:
    head, _, body = data.partition(b"\n")
    if head + b"\n" != _cache_head(body):
        return {}
    return {key: _facts_from(entry) for key, entry in json.loads(body).items()}


def _facts_from(entry: dict[str, Any]) -> ModuleFacts:
    imports = tuple((level, module, tuple(names)) for level, module, names in entry["imports"])
    return ModuleFacts(
        digest=entry["digest"],
        imports=imports,
        mentioned=tuple(entry["mentioned"]),
        dynamic=tuple(entry["dynamic"]),
        reads_files=entry["reads_files"],
    )


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _excluded(name: str) -> bool:
    return any(name == item or name.startswith(f"{item}.") for item in EXCLUDED)


def _absolute(importer: str, is_package: bool, level: int, module: str) -> str:
    if level == 0:
        return module
    parts = importer.split(".")
    base = parts[: len(parts) - level + (1 if is_package else 0)]
    return ".".join([*base, module] if module else base)
