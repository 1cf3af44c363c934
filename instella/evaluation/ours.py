"""Figures of ours that stand beside published ones, from a run or from a file.

Keys are (table, model, benchmark), as the published tables name them; values are in the
unit that the tables print.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.canonical import read_json, read_jsonl
from instella.errors import BadUse
from instella.evaluation.compare import Score, share
from instella.evaluation.records import samples
from instella.evaluation.suites import FOLDER
from instella.recipe.fields import FieldReader
from instella.recipe.published import Results
from instella.recipe.settings import setting
from instella.recipe.tree import read_tree

Key = tuple[str, str, str]
MEASURED = "measured.yaml"


@dataclass(frozen=True)
class Column:
    """A held-out set that stands beside a column of a table."""

    set: str = setting("held-out set of the recipe")
    metric: str = setting("which of its figures")
    deviations: tuple[str, ...] = setting("ids that forbid a comparison", default=())
    noted: tuple[str, ...] = setting("ids that do not", default=())


@dataclass(frozen=True)
class Unmeasured:
    """What explains a column without a set."""

    deviation: str = setting("its id")
    tables: tuple[str, ...] = setting("tables that it is about")


@dataclass(frozen=True)
class Gain:
    """A published difference of two averages."""

    table: str = setting("table whose average it is")
    model: str = setting("the better model")
    over: str = setting("the other one")
    figure: str = setting("figures.NAME that was printed")


@dataclass(frozen=True)
class Seeds:
    """Where runs of one recipe with other seeds are printed."""

    table: str = setting("table")
    column: str = setting("benchmark")
    models: tuple[str, ...] = setting("one a seed")
    average: str = setting("table whose average it is")


@dataclass(frozen=True)
class Measured:
    """``suites/measured.yaml``."""

    models: dict[str, str] = setting("published model -> checkpoint of the recipe")
    columns: dict[str, dict[str, Column]] = setting("table -> benchmark -> held-out set")
    not_measured: Unmeasured = setting("columns without a set")
    gains: tuple[Gain, ...] = setting("published differences")
    seeds: Seeds = setting("noise of training")


@dataclass(frozen=True)
class Ours:
    """A figure of ours; any id in ``deviations`` forbids a comparison, ``noted`` ones do not.

    ``overlap`` tells how many of its items the training data hold; empty when not checked.
    """

    score: Score
    deviations: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    overlap: str = ""


def read_measured(folder: Path) -> Measured:
    """``measured.yaml`` of a published folder; BadUse with file and line of a fault."""
    path = folder / FOLDER / MEASURED
    measured: Measured = FieldReader(str(path)).read(Measured, read_tree(path))
    return measured


def of_run(
    results: Path, measured: Measured, tables: Results, overlap: Mapping[str, Any]
) -> dict[Key, Ours]:
    """What the evaluations of a run give; columns that were not measured are left out.

    Args:
        results: the run's folder, with ``evaluate_CHECKPOINT`` folders.
        measured: which of their figures stand where. Accuracies become percent.
        tables: published scores; a checkpoint stands in the tables that name its model.
        overlap: checkpoint -> set -> counts, as ``read_overlap`` gives them; may be empty.

    Raises:
        BadUse: ``measured`` names a table that is not published.
    """
    found = {}
    for table, columns in measured.columns.items():
        if table not in tables.tables:
            raise BadUse(f"suites/{MEASURED}: {table}: not published; correct the name")
        for model in tables.tables[table].scores:
            checkpoint = measured.models.get(model)
            for benchmark, column in columns.items() if checkpoint else ():
                path = results / f"evaluate_{checkpoint}" / f"{column.set}.jsonl"
                records = read_jsonl(path) if path.is_file() else []
                if not records or column.metric not in records[0]["figures"]:
                    continue
                value = share(samples(records, column.metric)).scaled(100.0)
                found[table, model, benchmark] = Ours(
                    value,
                    column.deviations,
                    column.noted,
                    _overlap(overlap.get(checkpoint or "", {}).get(column.set)),
                )
    return found


def read_overlap(path: Path) -> dict[str, Any]:
    """What ``instella evaluation overlap --json`` printed; BadUse for another form."""
    try:
        value = read_json(path)
    except OSError as error:
        raise BadUse(f"{path}: {error.strerror}: give a readable .json file") from None
    sets = list(value.values()) if isinstance(value, dict) else [None]
    counts = [one for held in sets for one in (held.values() if isinstance(held, dict) else [None])]
    names = {"items", "exact", "near", "short"}
    if not all(isinstance(one, dict) and set(one) == names
               and all(type(count) is int for count in one.values()) for one in counts):  # fmt: skip
        raise BadUse(f"{path}: no overlap; make it with instella evaluation overlap --json")
    return dict(value)


def _overlap(counts: Mapping[str, int] | None) -> str:
    if counts is None:
        return ""
    short = f", {counts['short']} too short for near" if counts["short"] else ""
    return f"{counts['exact']} exact, {counts['near']} near of {counts['items']}{short}"


def of_file(path: Path) -> dict[Key, Ours]:
    """Figures that another program measured: a JSON list of objects.

    Each has ``table``, ``model``, ``benchmark``, ``value`` and ``error`` (standard error, both
    in the unit that the table prints), and may have ``items``, ``deviations`` and ``noted``.

    Raises:
        BadUse: another form, or one figure twice; names the entry.
    """
    try:
        entries = read_json(path)
    except OSError as error:
        raise BadUse(f"{path}: {error.strerror}: give a readable .json file") from None
    if not isinstance(entries, list):
        raise BadUse(f"{path}: expected a list of figures; see docs/evaluation.md")
    found: dict[Key, Ours] = {}
    for number, entry in enumerate(entries):
        key, figure = _entry(entry, f"{path}: entry {number}")
        if key in found:
            raise BadUse(f"{path}: entry {number}: {', '.join(key)} stands twice; keep one")
        found[key] = figure
    return found


def _entry(entry: Any, where: str) -> tuple[Key, Ours]:
    known = {"table", "model", "benchmark", "value", "error", "items", "deviations", "noted"}
    if not isinstance(entry, Mapping) or not set(entry) <= known:
        raise BadUse(f"{where}: expected an object with {', '.join(sorted(known))}")
    table, model, benchmark = (
        _text(entry, name, where) for name in ("table", "model", "benchmark")
    )
    error = _number(entry.get("error"), "error", where)
    items = entry.get("items", 0)
    if error < 0 or type(items) is not int or items < 0:
        raise BadUse(f"{where}: error (a standard error) and items (a whole number) are at least 0")
    value = Score(_number(entry.get("value"), "value", where), error, items, 0)
    ours = Ours(value, _ids(entry, "deviations", where), _ids(entry, "noted", where))
    return (table, model, benchmark), ours


def _text(entry: Mapping[str, Any], name: str, where: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str):
        raise BadUse(f"{where}: {name} has to be text, as the published table names it")
    return value


def _number(value: Any, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BadUse(f"{where}: {name} has to be a number, in the unit of the published table")
    return float(value)


def _ids(entry: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    value = entry.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadUse(f"{where}: {name} has to be a list of texts, ids of deviations.yaml")
    return tuple(value)
