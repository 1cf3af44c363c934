"""The options of an adapter: taken one by one, checked, unknown ones refused."""

import math
from typing import Any

from instella.errors import BadUse
from instella.recipe.settings import Part

REQUIRED = object()


class Options:
    """Options of one part. Take each by name, then call ``end``.

    Every method raises BadUse, naming source, adapter and option.
    """

    def __init__(self, part: Part) -> None:
        self._left = dict(part.options or {})
        self._where = f"source {part.source}, adapter {part.adapter}"

    def text(
        self, name: str, default: Any = REQUIRED, choices: tuple[str, ...] | None = None
    ) -> str:
        """A non-empty text, one of ``choices`` when given."""
        value = self._take(name, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "need a text")
        if choices is not None and value not in choices:
            raise self.wrong(name, f"{value!r} is not one of {', '.join(choices)}")
        return value

    def optional_text(self, name: str) -> str | None:
        """A text, or None when it is not given."""
        return self.text(name) if name in self._left else None

    def texts(self, name: str, default: Any = REQUIRED) -> tuple[str, ...]:
        """One text or a list of texts."""
        value = self._take(name, default)
        items = (value,) if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)) or not all(isinstance(i, str) for i in items):
            raise self.wrong(name, "need a text or a list of texts")
        return tuple(items)

    def mapping(self, name: str) -> dict[str, str]:
        """Texts by text; empty when it is not given."""
        value = self._take(name, {})
        pairs = value.items() if isinstance(value, dict) else [(None, None)]
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in pairs):
            raise self.wrong(name, "need texts by text")
        return dict(value)

    def whole(self, name: str, default: Any = REQUIRED, at_least: int = 0) -> int:
        """A whole number."""
        value = self._take(name, default)
        if type(value) is not int or value < at_least:
            raise self.wrong(name, f"need a whole number of at least {at_least}")
        return value

    def optional_whole(self, name: str, at_least: int = 0) -> int | None:
        """A whole number, or None when it is not given."""
        return self.whole(name, at_least=at_least) if name in self._left else None

    def share(self, name: str, default: float) -> float:
        """A number from 0 to 1."""
        value = self._take(name, default)
        if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= 1:
            raise self.wrong(name, "need a number from 0 to 1")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "need true or false")
        return value

    def limits(self, name: str) -> tuple[int, int] | None:
        """``[smallest, largest]``, both included; None when it is not given."""
        value = self._take(name, None)
        if value is None:
            return None
        whole = isinstance(value, (list, tuple)) and all(type(item) is int for item in value)
        if not whole or len(value) != 2 or value[0] > value[1]:
            raise self.wrong(name, "need [smallest, largest]")
        return value[0], value[1]

    def end(self) -> None:
        """Refuse what nobody took."""
        if self._left:
            names = ", ".join(sorted(self._left))
            raise BadUse(f"{self._where}: no such option: {names}")

    def wrong(self, name: str, reason: str) -> BadUse:
        """The error for a wrong value of option ``name``."""
        return BadUse(f"{self._where}: option {name}: {reason}")

    def _take(self, name: str, default: Any) -> Any:
        value = self._left.pop(name, default)
        if value is REQUIRED:
            raise BadUse(f"{self._where}: option {name} is missing")
        return value
