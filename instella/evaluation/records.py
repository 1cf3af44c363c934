"""Records and scores on disk: ``NAME.jsonl`` for each set and ``scores.json``."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from instella.canonical import read_json, read_jsonl, write_json, write_jsonl
from instella.errors import VerificationError
from instella.evaluation.statistics import Sample, estimate

Record = dict[str, Any]


def read_items(folder: Path, name: str) -> list[Record]:
    """Items of one set of a ``heldout`` artifact; VerificationError if there is none."""
    path = folder / f"{name}.jsonl"
    items = read_jsonl(path)
    if not items:
        raise VerificationError(f"{path}: held-out set {name} has no item; correct its part")
    return items


def samples(records: Sequence[Record], metric: str) -> list[Sample]:
    """The records' share of one metric, in their order."""
    return [
        Sample(record["key"], record["cluster"], tuple(record["figures"][metric]))
        for record in records
    ]


def write_scores(
    folder: Path, measured: dict[str, list[Record]], resamples: int, seed: int
) -> None:
    """Write the records of each set, at least one, and the figures with intervals."""
    scores: dict[str, Any] = {}
    for name, records in measured.items():
        write_jsonl(folder / f"{name}.jsonl", records)
        scores[name] = {
            metric: asdict(estimate(samples(records, metric), resamples, seed))
            for metric in sorted(records[0]["figures"])
        }
    write_json(folder / "scores.json", scores)


def read_scores(folder: Path) -> dict[str, Any]:
    """``scores.json`` of an evaluation."""
    scores = read_json(folder / "scores.json")
    if not isinstance(scores, dict):
        raise VerificationError(f"{folder / 'scores.json'}: not an object")
    return scores
