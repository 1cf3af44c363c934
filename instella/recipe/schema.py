"""JSON Schema (draft 2020-12) of recipe and placement, for editors and other tools.

Generated from the dataclasses of ``settings.py``; ``python -m instella.recipe.schema``
writes the files under ``workflow/schemas``. The reader does not use them: it checks more
than a schema can say, and names the line.
"""

import json
import sys
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from instella.canonical import write_bytes
from instella.recipe.fields import is_required, without_none
from instella.recipe.settings import Placement, Recipe

FOLDER = Path(__file__).resolve().parents[2] / "workflow" / "schemas"

_PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}
_BOUNDS = {
    "at_least": "minimum",
    "at_most": "maximum",
    "more_than": "exclusiveMinimum",
    "choices": "enum",
}


def json_schema(cls: type) -> dict[str, Any]:
    """The schema of a settings class, nested classes under ``$defs``."""
    definitions: dict[str, Any] = {}
    top = _object(cls, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": cls.__name__,
        **top,
        "$defs": definitions,
    }


def schemas() -> dict[str, bytes]:
    """File name to bytes: two blanks of indentation, sorted keys, LF."""
    return {
        "recipe.schema.json": _bytes(json_schema(Recipe)),
        "config.schema.json": _bytes(json_schema(Placement)),
    }


def _bytes(schema: dict[str, Any]) -> bytes:
    return (json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _object(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    kinds = typing.get_type_hints(cls)
    return {
        "type": "object",
        "description": " ".join((cls.__doc__ or "").split()),
        "additionalProperties": False,
        "required": [item.name for item in fields(cls) if is_required(item)],
        "properties": {
            item.name: _property(kinds[item.name], item, definitions) for item in fields(cls)
        },
    }


def _property(kind: Any, item: Field[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    inner, nullable = without_none(kind)
    schema = _type(inner, item.metadata, definitions)
    if nullable or item.default is None:
        schema = {"anyOf": [schema, {"type": "null"}]}
    schema["description"] = item.metadata["about"]
    if item.default is not MISSING:
        default = item.default
        is_settings = is_dataclass(default) and not isinstance(default, type)
        schema["default"] = asdict(default) if is_settings else default
    return schema


def _type(kind: Any, bounds: Mapping[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if kind is Any:
        return {}
    if is_dataclass(kind):
        name = typing.cast(type, kind).__name__
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = _object(typing.cast(type, kind), definitions)
        return {"$ref": f"#/$defs/{name}"}
    origin = typing.get_origin(kind)
    if origin is tuple:
        return {"type": "array", "items": _type(typing.get_args(kind)[0], bounds, definitions)}
    if origin is dict:
        values = _type(typing.get_args(kind)[1], bounds, definitions)
        return {"type": "object", "additionalProperties": values}
    limits = {_BOUNDS[name]: value for name, value in bounds.items() if name in _BOUNDS}
    return {"type": _PLAIN[kind], **limits}


def write_schemas(folder: Path) -> None:
    """Write both schemas into ``folder``, which is made when missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in schemas().items():
        write_bytes(folder / name, data)


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
