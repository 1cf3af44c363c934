"""Overrides as words of hydra's command line."""

import json
import re
from collections.abc import Mapping
from typing import Any

from instella.errors import BadUse

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def as_words(chosen: Mapping[str, Any]) -> list[str]:
    """Overrides as hydra reads them on its command line."""
    return [f"{name}={_word(value)}" for name, value in chosen.items()]


def _word(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{','.join(_word(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{_word(item)}" for name, item in value.items()) + "}"
    return json.dumps(value)


def _quoted(text: str) -> str:
    """Text for hydra's grammar: what is more than a plain word stands in quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in ("null", "true", "false", "nan", "inf"):
        return text
    if "\\" in text or "${" in text or "\n" in text:
        raise BadUse(f"{text!r}: hydra's words cannot hold this; take another name or path")
    return "'" + text.replace("'", "\\'") + "'"
