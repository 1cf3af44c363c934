"""What is published about a recipe, as data: the files of ``recipes/published``.

    sources.yaml      legend of the publications; for each setting of the recipe where its
                      value comes from and, where it is published, the value again
    beyond.yaml       published settings that the schema has no place for
    figures.yaml      published figures, and what the recipe has to amount to
    evaluation.yaml   published protocols
    results.json      published scores
    deviations.yaml   contradictions, faults, and where the recipe decides otherwise

They are read by the same typed reader as a recipe, so a fault is one line with its place.
Nothing in them reaches an artifact.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.errors import BadUse
from instella.recipe.fields import FieldReader, suggestion
from instella.recipe.settings import Recipe, setting
from instella.recipe.tree import read_tree

# From the surest to the least sure; `ours` is no publication at all.
CONFIDENCES = ("published-code", "published-text", "derived", "default", "ours", "unknown")


@dataclass(frozen=True)
class Publication:
    """One entry of the legend."""

    title: str = setting("what it is")
    confidence: str = setting("of a value read there", choices=CONFIDENCES)
    address: str | None = setting("where it is found", default=None)
    commit: str | None = setting("the state that was read", default=None)


@dataclass(frozen=True)
class Group:
    """Settings with one origin.

    A path below ``within`` names a setting and all below it; ``*`` stands for one step.
    ``values`` also says what is published, which the recipe has to hold; ``settings``
    gives the origin only.
    """

    sources: tuple[str, ...] = setting("codes of the legend; the first decides the confidence")
    where: str = setting("file, line or table in the first source", default="")
    note: str = setting("what has to be known; for `ours` and `unknown` the reason", default="")
    confidence: str | None = setting("instead of the legend's", default=None, choices=CONFIDENCES)
    within: str = setting("prefix of every path", default="")
    values: dict[str, Any] = setting("path -> published value", default=None)
    settings: tuple[str, ...] = setting("paths without a published value", default=())


@dataclass(frozen=True)
class Sources:
    """``sources.yaml``."""

    legend: dict[str, Publication] = setting("code -> publication")
    groups: tuple[Group, ...] = setting("origin of every setting")


@dataclass(frozen=True)
class Beyond:
    """``beyond.yaml``; every group has values."""

    groups: tuple[Group, ...] = setting("published settings outside the schema")


@dataclass(frozen=True)
class Figure:
    """One published number."""

    value: float = setting("the number")
    sources: tuple[str, ...] = setting("codes of the legend")
    where: str = setting("file, line or table", default="")
    note: str = setting("what has to be known", default="")


@dataclass(frozen=True)
class Derived:
    """Something the recipe amounts to: a formula of ``recompute.py`` and its expected result."""

    formula: str = setting("name of a formula")
    about: str = setting("in plain words")
    equals: str = setting("expected: a number, a setting or figures.NAME")
    of: tuple[str, ...] = setting("operands: a setting, figures.NAME, or a number", default=())
    tolerance: float = setting("largest difference, from the digits printed", default=0.0)


@dataclass(frozen=True)
class Figures:
    """``figures.yaml``."""

    figures: dict[str, Figure] = setting("published numbers")
    derived: dict[str, Derived] = setting("what has to follow")


@dataclass(frozen=True)
class Task:
    """One benchmark of a published protocol."""

    task: str = setting("name in the harness, variant included")
    metric: str = setting("figure that was printed")
    shots: int = setting("worked examples in the prompt", default=0, at_least=0)
    items: int | None = setting("number of items; null: not stated", default=None, at_least=1)


@dataclass(frozen=True)
class Suite:
    """One published protocol."""

    sources: tuple[str, ...] = setting("codes of the legend")
    where: str = setting("file, line or table")
    harness: str = setting("program")
    tasks: dict[str, Task] = setting("benchmark as the table calls it -> protocol")
    commit: str | None = setting("its state; null: not stated", default=None)
    options: dict[str, Any] = setting("of the harness", default=None)
    note: str = setting("what has to be known", default="")


@dataclass(frozen=True)
class Protocols:
    """``evaluation.yaml``."""

    suites: dict[str, Suite] = setting("by name")


@dataclass(frozen=True)
class Table:
    """One published table: a null is a score that nobody can read as text."""

    sources: tuple[str, ...] = setting("codes of the legend")
    where: str = setting("table")
    scores: dict[str, dict[str, Any]] = setting("model -> benchmark -> score")
    suite: str | None = setting("its protocol in evaluation.yaml", default=None)
    note: str = setting("what has to be known", default="")
    tolerance: float = setting(
        "largest difference between the mean of a row and its printed average", default=0.005
    )
    average_of: tuple[str, ...] = setting("benchmarks in the average", default=())
    averages: dict[str, Any] = setting("model -> printed average", default=None)


@dataclass(frozen=True)
class Results:
    """``results.json``."""

    tables: dict[str, Table] = setting("by name")


@dataclass(frozen=True)
class Statement:
    """What one publication says."""

    says: str = setting("in our words")
    source: str = setting("code of the legend")
    where: str = setting("file, line or table", default="")


@dataclass(frozen=True)
class Deviation:
    """A contradiction or fault of the publications, or a decision of this recipe."""

    id: str = setting("short name")
    stage: str = setting("stage, or general, data, evaluation")
    kind: str = setting("what it is", choices=("contradiction", "fault", "gap", "choice"))
    about: str = setting("subject")
    published: tuple[Statement, ...] = setting("what the publications say, at least one")
    choice: str = setting("what this recipe does")
    consequence: str = setting("what follows")
    test: str = setting("pytest id of a test that asserts it")


@dataclass(frozen=True)
class Deviations:
    """``deviations.yaml``."""

    deviations: tuple[Deviation, ...] = setting("by stage")


@dataclass(frozen=True)
class Published:
    """All of a folder."""

    sources: Sources
    beyond: Beyond
    figures: Figures
    protocols: Protocols
    results: Results
    deviations: tuple[Deviation, ...]


def read_published(recipe: Recipe, recipe_file: Path) -> Published | None:
    """What is published about a recipe; None when the recipe names no folder.

    Raises:
        BadUse: with file and line of the first fault, or a code that the legend lacks.
    """
    if recipe.published is None:
        return None
    folder = recipe_file.parent / recipe.published
    published = Published(
        sources=_read(folder / "sources.yaml", Sources),
        beyond=_read(folder / "beyond.yaml", Beyond),
        figures=_read(folder / "figures.yaml", Figures),
        protocols=_read(folder / "evaluation.yaml", Protocols),
        results=_read(folder / "results.json", Results),
        deviations=_read(folder / "deviations.yaml", Deviations).deviations,
    )
    _check_codes(published, folder)
    return published


def _read(path: Path, kind: type) -> Any:
    return FieldReader(str(path)).read(kind, read_tree(path))


def _check_codes(published: Published, folder: Path) -> None:
    """Whatever is stated has a source, and every code of one stands in the legend."""
    legend = published.sources.legend
    for where, codes in _codes(published):
        if not codes:
            raise BadUse(f"{folder}: {where} names no source; name one of {', '.join(legend)}")
        unknown = next((code for code in codes if code not in legend), None)
        if unknown is not None:
            cure = suggestion(unknown, legend)
            raise BadUse(f"{folder}: {where} names the source '{unknown}' without a legend; {cure}")


def _codes(published: Published) -> list[tuple[str, tuple[str, ...]]]:
    named: list[tuple[str, tuple[str, ...]]] = []
    for file, groups in (("sources.yaml", published.sources), ("beyond.yaml", published.beyond)):
        for index, group in enumerate(groups.groups):
            named.append((f"{file}: groups[{index}]", group.sources))
    for name, figure in published.figures.figures.items():
        named.append((f"figures.yaml: {name}", figure.sources))
    for name, suite in published.protocols.suites.items():
        named.append((f"evaluation.yaml: {name}", suite.sources))
    for name, table in published.results.tables.items():
        named.append((f"results.json: {name}", table.sources))
    for item in published.deviations:
        codes = tuple(statement.source for statement in item.published)
        named.append((f"deviations.yaml: {item.id}", codes))
    return named
