"""What a scalar of a YAML file looks like, by the YAML 1.2 core schema.

Readers that follow YAML 1.1 (PyYAML among them) take ``1e-3`` for text and ``yes``,
``1:30`` or ``017`` for something else than text; such a form is called ambiguous, unless
the type that a setting asks for settles it.
"""

import re

import yaml

from instella.recipe.nodes import Entries, Items, Node, Scalar, shown

BOOLEANS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
WANTED = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.?(inf|nan|infinity)", re.IGNORECASE)
_NULLS = ("", "~", "null", "Null", "NULL")


def is_null(node: Node) -> bool:
    """An absent value, ``null`` or ``~``."""
    return isinstance(node, Scalar) and node.plain and node.text in _NULLS


def form(node: Scalar) -> str:
    """One of: text, boolean, whole number, number, not finite, ambiguous."""
    if not node.plain and not node.given:
        return "text"
    text = node.text
    if text in BOOLEANS:
        return "boolean"
    if _INTEGER.fullmatch(text):
        return "whole number"
    if _NOT_FINITE.fullmatch(text):
        return "not finite"
    octal = text.lstrip("+-").isdigit()
    if _NUMBER.fullmatch(text) and not octal:
        return "number"
    return "ambiguous" if _has_yaml_1_1_type(text) else "text"


def _has_yaml_1_1_type(text: str) -> bool:
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers.get(text[:1], [])
    return any(pattern.match(text) for _, pattern in resolvers)


def found(node: Node) -> str:
    """The node in words, for an error."""
    if isinstance(node, Entries):
        return "a mapping"
    if isinstance(node, Items):
        return "a list"
    if is_null(node):
        return "null"
    named = {"boolean": "the boolean", "text": "the text", "ambiguous": "the ambiguous"}
    return f"{named.get(form(node), 'the number')} {shown(node.text)}"
