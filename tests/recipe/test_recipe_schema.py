"""The JSON Schemas: up to date, valid, and of one mind with the reader."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from instella.recipe.schema import FOLDER, schemas, write_schemas

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "recipes").glob("*.yaml"))
SMALL = Path(__file__).with_name("small.yaml")


def validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(json.loads(schemas()[name]))


def plain(path: Path) -> Any:
    """As an ordinary tool reads it."""
    text = path.read_text(encoding="utf-8")
    return json.loads(json.dumps(yaml.safe_load(text)))


def test_the_files_are_up_to_date(tmp_path: Path) -> None:
    write_schemas(tmp_path)
    for name in ("recipe.schema.json", "config.schema.json"):
        shipped = (FOLDER / name).read_bytes()
        assert shipped == (tmp_path / name).read_bytes(), "run python -m instella.recipe.schema"
        assert shipped.endswith(b"}\n") and b"\r" not in shipped
        value = json.loads(shipped)
        jsonschema.Draft202012Validator.check_schema(value)
        assert list(value) == sorted(value)


@pytest.mark.parametrize("path", SHIPPED, ids=[path.name for path in SHIPPED])
def test_shipped_recipes_are_accepted(path: Path) -> None:
    errors = [error.message for error in validator("recipe.schema.json").iter_errors(plain(path))]
    assert errors == []


def test_the_shipped_placement_is_accepted() -> None:
    assert validator("config.schema.json").is_valid(plain(ROOT / "config.yaml"))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("model", "hidden_size"), 1),
        (("model", "hidden_size"), "64"),
        (("model", "hidden"), 64),
        (("model", "rope_theta"), 0),
        (("numerics",), "gfx90a"),
        (("tokenizer", "parts"), [{"source": "texts"}]),
        (("evaluation", "suites", "grpo1"), "problems"),
        (("sources", "sums", "options"), []),
        (("sources", "rows", "files"), None),
    ],
)
def test_the_schema_refuses(place: tuple[str, ...], value: object) -> None:
    text = re.sub(r"(: \d)e-", r"\1.0e-", SMALL.read_text(encoding="utf-8"))
    recipe = yaml.safe_load(text)
    checker = validator("recipe.schema.json")
    assert checker.is_valid(recipe)
    changed = copy.deepcopy(recipe)
    target = changed
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    assert not checker.is_valid(changed)


def test_every_property_is_described() -> None:
    recipe = json.loads(schemas()["recipe.schema.json"])
    for name, definition in [("Recipe", recipe), *recipe["$defs"].items()]:
        assert definition["description"], name
        for key, value in definition["properties"].items():
            assert value["description"], f"{name}.{key}"
