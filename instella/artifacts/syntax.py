"""What one source file contributes to a code hash, as a pure function of its bytes."""

import ast
import re
from dataclasses import dataclass
from typing import Any

from instella.canonical import sha256_bytes
from instella.errors import BadUse

PACKAGE = "instella"

_DYNAMIC_NAMES = {"__import__", "eval", "exec"}
_DYNAMIC_CALLS = {
    "import_module", "__import__", "run_module", "run_path", "spec_from_file_location",
}  # fmt: skip
_FILE_READERS = {"importlib.resources", "pkgutil"}
_UNCOUNTED_FIELDS = {"ctx", "kind", "type_comment", "type_ignores"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class ModuleFacts:
    """What one source file contributes; depends on its bytes alone.

    Attributes:
        digest: SHA-256 of the normalised syntax tree.
        imports: ``(level, module, names)`` as written; no names for ``import module``.
        mentioned: string constants that look like modules of the package; a process
            started with such a name imports that module.
        dynamic: imports that cannot be followed, with their lines.
        reads_files: the module opens files that lie beside it in the package.
    """

    digest: str
    imports: tuple[tuple[int, str, tuple[str, ...]], ...]
    mentioned: tuple[str, ...]
    dynamic: tuple[str, ...]
    reads_files: bool


def module_facts(source: bytes, where: str) -> ModuleFacts:
    """Parse one source file; ``where`` names it in the error.

    Raises:
        BadUse: the source is not Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise BadUse(f"{where}: not Python: {error}") from None
    parts: list[str] = []
    _normalise(tree, parts)
    found = _Found()
    found.visit(tree)
    return ModuleFacts(
        digest=sha256_bytes("".join(parts).encode("ascii")),
        imports=tuple(sorted(found.imports)),
        mentioned=tuple(sorted(found.mentioned)),
        dynamic=tuple(found.dynamic),
        reads_files=found.reads_files,
    )


def _normalise(node: Any, parts: list[str]) -> None:
    """Append the tree as ASCII text; empty fields are left out, as Python versions add some."""
    if isinstance(node, ast.Constant):
        parts.append(f"<{type(node.value).__name__} {node.value!a}>")
    elif isinstance(node, ast.AST):
        parts.append(f"({type(node).__name__}")
        for field, value in ast.iter_fields(node):
            if field == "body" and isinstance(node, _DOCUMENTED):
                value = _without_docstring(node, value)
            if field in _UNCOUNTED_FIELDS or value is None or value == []:
                continue
            parts.append(f" {field}=")
            _normalise(value, parts)
        parts.append(")")
    elif isinstance(node, list):
        parts.append("[")
        for item in node:
            _normalise(item, parts)
            parts.append(",")
        parts.append("]")
    else:
        parts.append(ascii(node))


def _without_docstring(node: Any, body: list[ast.stmt]) -> list[ast.stmt]:
    return body[1:] if ast.get_docstring(node, clean=False) is not None else body


class _Found(ast.NodeVisitor):
    """Collects what a module imports, mentions and reads."""

    def __init__(self) -> None:
        self.imports: set[tuple[int, str, tuple[str, ...]]] = set()
        self.mentioned: set[str] = set()
        self.dynamic: list[str] = []
        self.reads_files = False

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imports.add((0, alias.name, ()))
            self.reads_files |= alias.name in _FILE_READERS

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        names = tuple(sorted(alias.name for alias in node.names))
        self.imports.add((node.level, module, names))
        self.reads_files |= module in _FILE_READERS
        self.reads_files |= any(f"{module}.{name}" in _FILE_READERS for name in names)
        if module.split(".")[0] in ("importlib", "runpy"):
            for name in sorted(_DYNAMIC_CALLS.intersection(names)):
                self.dynamic.append(f"line {node.lineno}: {name}")

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _DYNAMIC_NAMES:
            self.dynamic.append(f"line {node.lineno}: {node.id}")
        self.reads_files |= node.id == "__file__"

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in _DYNAMIC_CALLS:
            self.dynamic.append(f"line {node.lineno}: {node.attr}")
        self.reads_files |= node.attr == "__file__"
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and re.fullmatch(rf"{PACKAGE}(\.\w+)+", node.value):
            self.mentioned.add(node.value)
