"""The results of a run as rows, and beside what is published."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from instella.errors import VerificationError
from instella.recipe.published import Published, read_published
from instella.recipe.settings import Recipe
from instella.report.files import Files

STAGE, FILE = "results", "results.json"
FOLDER = "published"
_NUMBERS = ("value", "low", "high")

Row = dict[str, Any]


def results_of(files: Files) -> dict[str, list[Row]] | None:
    """``claims`` and ``scores`` of the stage ``results``; None before it has run.

    Scores stand in the order of the stages; each has checkpoint, set, metric, value, low, high and items; each claim what the
    recipe says of it, and what was measured.
    """
    value = files.json(STAGE, FILE)
    if value is None:
        return None
    try:
        order = {name: number for number, name in enumerate(files.manifests)}
        scores = sorted(_scores(value), key=lambda row: order.get(row["checkpoint"], -1))
        return {"claims": list(_claims(value)), "scores": scores}
    except (VerificationError, KeyError, TypeError, AttributeError):
        files.faults.append(f"{STAGE}: {FILE}: not the form that the kit writes; audit the run")
        return None


def _claims(value: Any) -> Iterator[Row]:
    for claim in value["claims"]:
        bounds = {name: _bound(claim[name]) for name in ("at_least", "at_most", "interval_above")}
        yield {
            "about": str(claim["about"]),
            "met": claim["met"] is True,
            **bounds,
            **_numbers(claim["measured"]),
        }


def _scores(value: Any) -> Iterator[Row]:
    for name, sets in {"unigram": value["baseline"], **value["checkpoints"]}.items():
        for held_out, metrics in sets.items():
            shown = value["choices"].get(held_out, {}).get("metric")
            for metric, figure in metrics.items():
                if shown is not None and metric != shown:
                    continue
                yield {"checkpoint": name, "set": held_out, "metric": metric, **_numbers(figure)}


def _numbers(figure: Mapping[str, Any]) -> Row:
    found = {name: figure[name] for name in (*_NUMBERS, "items")}
    if not all(type(item) in (int, float) for item in found.values()):
        raise VerificationError("a figure that is no number")
    return found


def _bound(value: Any) -> float | None:
    if value is not None and type(value) not in (int, float):
        raise VerificationError("a bound that is no number")
    return value


def published_of(recipe: Recipe, recipe_file: Path) -> Published | None:
    """What is published: of the recipe, or of the one whose folder lies beside it."""
    if recipe.published is not None:
        return read_published(recipe, recipe_file)
    if not (recipe_file.parent / FOLDER).is_dir():
        return None
    return read_published(replace(recipe, published=FOLDER), recipe_file)


def reconciliation(
    recipe: Recipe, recipe_file: Path, published: Published, files: Files
) -> list[Row]:
    """Every published score beside ours; no row when a file of an evaluation is at fault."""
    # imported here: it loads numpy, which a page without published scores spares
    from instella.evaluation.ours import of_run, read_measured
    from instella.evaluation.reconcile import Reconciliation
    from instella.evaluation.suites import read_suites

    for name, manifest in files.manifests.items():
        if manifest.kind == "evaluate":
            records = [path for path in manifest.files if path.endswith(".jsonl")]
            if not all(files.is_sound(name, path) for path in records):
                return []
    folder = recipe_file.parent / (recipe.published or FOLDER)
    measured = read_measured(folder)
    ours = of_run(files.results, measured, published.results, {})
    foreign = "" if recipe.published else f"recipe {recipe.name} is not the published one"
    rows = Reconciliation(published, read_suites(folder), measured, ours, foreign).rows()
    return [
        {
            "table": row.table,
            "model": row.model,
            "benchmark": row.benchmark,
            "published": row.published,
            "ours": None if row.ours is None else row.ours.value,
            "interval": None if row.ours is None else list(row.ours.interval()),
            "verdict": row.verdict.word,
            "reason": row.verdict.reason,
            "deviations": list(row.deviations),
        }
        for row in rows
    ]
