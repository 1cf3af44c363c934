"""Reads Dockerfiles: those of the images for CPUs say all of an image that the layers don't."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from instella.errors import VerificationError

_ADD = re.compile(r"ADD ([\w.-]+) /")
_ENV = re.compile(r"ENV (\w+=\S+(?: \w+=\S+)*)")
_USER = re.compile(r"USER (\d+:\d+)")


@dataclass(frozen=True)
class Assembly:
    """An image out of finished layers.

    Attributes:
        layers: names of the layers' files, from the bottom up.
        environment: variables of its processes.
        user: user and group number of its processes, ``10001:10001``; empty without a USER.
    """

    layers: tuple[str, ...]
    environment: Mapping[str, str]
    user: str


def read_assembly(path: Path) -> Assembly:
    """The Dockerfile of an image for CPUs: ``FROM scratch``, ``ADD FILE /``, ``ENV``, ``USER``.

    Raises:
        VerificationError: another instruction, which the kit would leave out.
    """
    lines = list(instructions(path.read_text(encoding="utf-8")))
    if not lines or lines.pop(0)[1] != "FROM scratch":
        raise VerificationError(f"{path}: expected FROM scratch as the first instruction")
    layers: list[str] = []
    environment: dict[str, str] = {}
    user = ""
    for number, line in lines:
        if (added := _ADD.fullmatch(line)) is not None:
            layers.append(added[1])
        elif (variables := _ENV.fullmatch(line)) is not None:
            environment |= dict(word.split("=", 1) for word in variables[1].split())
        elif (named := _USER.fullmatch(line)) is not None:
            user = named[1]
        else:
            raise VerificationError(
                f"{path}:{number}: expected ADD FILE /, ENV or USER by number, found {line!r}"
            )
    return Assembly(tuple(layers), environment, user)


def instructions(text: str) -> Iterator[tuple[int, str]]:
    """Instructions in one line each, with the number of their first line."""
    start = 0
    parts: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or not (line.strip() or parts):
            continue
        start = start if parts else number
        parts.append(line.rstrip().removesuffix("\\").strip())
        if not line.rstrip().endswith("\\"):
            yield start, " ".join(parts)
            parts = []
