"""Pages of the reference, made from the schemas and from the command line itself.

``python -m instella.commands.pages`` writes ``docs/settings.md`` and ``docs/commands.md``; a test
compares them. Nothing in them is written by hand.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from instella.canonical import write_bytes
from instella.cli import command_line
from instella.commands.common import json_line
from instella.recipe.schema import json_schema
from instella.recipe.settings import Placement, Recipe

FOLDER = Path(__file__).resolve().parents[2] / "docs"
NOTE = "This page is made by `python -m instella.commands.pages`; do not edit it."
BOUNDS = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}
COMMON = ("config", "recipe_file", "results", "store", "debug", "help", "version")


def pages() -> dict[str, bytes]:
    """File name to bytes."""
    return {
        "settings.md": "\n".join(_settings()).encode() + b"\n",
        "commands.md": "\n".join(_commands()).encode() + b"\n",
    }


def _settings() -> Iterator[str]:
    yield from ("# Settings", "", NOTE, "")
    yield "A file may leave out what has a default. `workflow/schemas/` has the same as JSON Schema."
    for title, place, cls in (
        ("Recipe", "`recipes/NAME.yaml`: what is made.", Recipe),
        ("Placement", "`config.yaml`: where and how. Nothing here changes a result.", Placement),
    ):  # fmt: skip
        schema = json_schema(cls)
        yield from ("", f"## {title}", "", place, "", *_table(schema))
        for name, inner in sorted(schema["$defs"].items()):
            yield from ("", f"### {name}", "", _text(inner["description"]), "", *_table(inner))


def _table(schema: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| setting | type | default | what |", "|---|---|---|---|")
    for name, item in schema["properties"].items():
        default = (
            "required" if name in schema["required"] else f"`{json_line(item.get('default'))}`"
        )
        yield f"| `{name}` | {_type(item)} | {default} | {_text(item['description'])} |"


def _type(item: Mapping[str, Any]) -> str:
    if "anyOf" in item:
        return " or ".join(_type(one) for one in item["anyOf"])
    if "$ref" in item:
        name = item["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in item:
        return ", ".join(f"`{json_line(choice)}`" for choice in item["enum"])
    if item.get("type") == "array":
        return f"list of {_type(item['items'])}"
    if item.get("type") == "object":
        return f"names to {_type(item['additionalProperties'])}"
    limits = [f"{word} {item[bound]:g}" for bound, word in BOUNDS.items() if bound in item]
    return " ".join([item.get("type", "anything"), ", ".join(limits)]).strip()


def _text(text: str) -> str:
    """Text in a cell of a table."""
    return text.replace("``", "`").replace("|", "\\|").replace("<", "&lt;")


def _commands() -> Iterator[str]:
    parser = command_line()
    yield from ("# Commands", "", NOTE, "")
    yield "`.venv/bin/instella COMMAND`. Every command takes these, before its name or behind it:"
    yield from ("", *_options(parser, common=True))
    for name, about, command in _commands_of(parser):
        yield from _command(f"instella {name}", about, command, 2)


def _commands_of(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            abouts = {item.dest: item.help or "" for item in action._choices_actions}
            for name, command in action.choices.items():
                yield name, abouts.get(name, ""), command


def _command(
    name: str, about: str, parser: argparse.ArgumentParser, level: int
) -> Iterator[str]:  # fmt: skip
    yield from ("", f"{'#' * level} {name}", "", f"{_text(about)}.")
    options = list(_options(parser, common=False))
    if len(options) > 2:
        yield from ("", *options)
    for inner, inner_about, command in _commands_of(parser):
        yield from _command(f"{name} {inner}", inner_about, command, level + 1)


def _options(parser: argparse.ArgumentParser, common: bool) -> Iterator[str]:
    yield from ("| argument | what |", "|---|---|")
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        if (action.dest in COMMON and bool(action.option_strings)) == common:
            yield f"| `{_usage(action)}` | {_text((action.help or '') % vars(action))} |"


def _usage(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    if action.choices is not None:
        value = ", ".join(map(str, action.choices))
    values = " ".join(value) if isinstance(value, tuple) else str(value)
    if action.nargs == 0:
        values = ""
    elif action.nargs in ("*", "+"):
        values += " ..."
    return " ".join([*action.option_strings[:1], values]).strip().replace("|", "\\|")


def write_pages(folder: Path) -> None:
    """Write the pages into ``folder``."""
    for name, data in pages().items():
        write_bytes(folder / name, data)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
