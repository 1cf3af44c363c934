"""What every comparator answers."""

from dataclasses import dataclass

SHOWN_CHARACTERS = 120


@dataclass(frozen=True)
class Finding:
    """One place that differs: a tensor's element, a row's field, a byte.

    Attributes:
        place: where.
        left, right: what stands there in A and B, as text.
        extent: how much differs around it, as ``12 of 64 elements, ULP max 3, median 1``.
    """

    place: str
    left: str
    right: str
    extent: str = ""

    def __str__(self) -> str:
        tail = f" ({self.extent})" if self.extent else ""
        return f"{self.place}: {self.left} | {self.right}{tail}"


@dataclass(frozen=True)
class Comparison:
    """How two files differ: in one line, and the places, the first one first."""

    summary: str
    findings: tuple[Finding, ...] = ()


def shortened(text: str) -> str:
    """One line of at most 120 characters, whatever a foreign file holds."""
    plain = text if text.isprintable() else ascii(text)
    return plain if len(plain) <= SHOWN_CHARACTERS else plain[: SHOWN_CHARACTERS - 3] + "..."
