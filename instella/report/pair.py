"""Two runs beside each other, as plain values. Nobody says which recipe made either."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from instella.artifacts.manifest import Manifest
from instella.audit.difference import difference
from instella.audit.runs import Run
from instella.report.curves import chart_data, read_curves, summaries
from instella.report.files import Files
from instella.report.scores import Row, results_of

MOST_ITEMS = 100


def pair_of(left: Run, right: Run) -> dict[str, Any]:
    """Everything of the page; ``left`` is A, ``right`` is B.

    Raises:
        VerificationError: a file that tells of settings or results is not that of its manifest.
    """
    sides = [Files(run.results, run.manifests) for run in (left, right)]
    names = list(dict.fromkeys((*left.manifests, *right.manifests)))
    rows = [_stage(name, left.manifests.get(name), right.manifests.get(name)) for name in names]
    curves = [
        curve for files, side in zip(sides, "AB", strict=True) for curve in read_curves(files, side)
    ]
    return {
        "equal": left.root == right.root,
        "a": {"root": left.root, "stages": len(left.manifests)},
        "b": {"root": right.root, "stages": len(right.manifests)},
        "first": next((row["name"] for row in rows if row["a"] != row["b"]), None),
        "same": sum(row["a"] == row["b"] for row in rows),
        "stages": rows,
        "differences": [
            {
                "name": name,
                "items": [asdict(item) for item in items[:MOST_ITEMS]],
                "more": max(0, len(items) - MOST_ITEMS),
            }
            for name, items in difference(left, right).items()
        ],
        "charts": chart_data(curves),
        "summaries": summaries(curves),
        "scores": _scores(*(results_of(files) for files in sides)),
        "faults": [
            f"{side}: {fault}"
            for files, side in zip(sides, "AB", strict=True)
            for fault in files.faults
        ],
    }  # fmt: skip


def _stage(name: str, left: Manifest | None, right: Manifest | None) -> dict[str, Any]:
    either = left or right
    return {
        "name": name,
        "kind": either.kind if either else "",
        "a": left.content if left else None,
        "b": right.content if right else None,
    }


def _scores(
    left: Mapping[str, list[Row]] | None, right: Mapping[str, list[Row]] | None
) -> list[Row]:
    """Scores that both runs have, in the order of A."""
    if left is None or right is None:
        return []
    others = {_key(row): row for row in right["scores"]}
    return [
        {"checkpoint": row["checkpoint"], "set": row["set"], "metric": row["metric"],
         "a": row, "b": others[_key(row)]}
        for row in left["scores"]
        if _key(row) in others
    ]  # fmt: skip


def _key(row: Row) -> tuple[str, str, str]:
    return row["checkpoint"], row["set"], row["metric"]
