"""Nodes of a YAML file that know their line, and the error that names it."""

from dataclasses import dataclass, field

from instella.errors import BadUse

MAX_SHOWN = 60


@dataclass(frozen=True)
class Scalar:
    """One value as it stands in the file.

    Attributes:
        line: counted from 1.
        text: the characters, without quotes.
        plain: written without quotes, so that its form decides its type.
        given: came from an option and not from a file: text and numbers look alike.
    """

    line: int
    text: str
    plain: bool
    given: bool = False


@dataclass
class Items:
    """A list."""

    line: int
    items: list["Node"] = field(default_factory=list)


@dataclass
class Entries:
    """A mapping; ``lines`` tells where each key stands."""

    line: int
    entries: dict[str, "Node"] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


Node = Scalar | Items | Entries


def bad_line(file: str, line: int, what: str, cure: str) -> BadUse:
    """The one line a person gets to see; line 0 stands for an option."""
    where = f"{file}:{line}" if line else f"option for {file}"
    text = f"{where}: {what}; {cure}"
    return BadUse("".join(letter if letter.isprintable() else " " for letter in text))


def shown(text: str) -> str:
    """``text`` in quotes, shortened, on one line."""
    cut = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    return ascii(cut) if not cut.isprintable() else f"'{cut}'"
