"""Records and rows in files that a user names: read with care, since anything may stand there."""

import math
from pathlib import Path
from typing import Any

from instella.canonical import read_jsonl
from instella.errors import BadUse

Row = dict[str, Any]
# No mark, loss or count comes near; their squares still have to be finite.
_LARGEST = 1e100


def given_rows(path: Path, *texts: str) -> list[Row]:
    """JSON lines of which some fields are texts and the first of them names the row.

    Raises:
        BadUse: the file cannot be read, holds no line, a line lacks a text, or two have one name.
    """
    try:
        rows = read_jsonl(path)
    except OSError as error:
        raise BadUse(f"{path}: {error.strerror}: give a readable .jsonl file") from None
    seen = set()
    for number, row in enumerate(rows, 1):
        for name in texts:
            if not isinstance(row.get(name), str):
                raise BadUse(f"{path}, line {number}: lacks the text {name}; give another file")
        if row[texts[0]] in seen:
            raise BadUse(f"{path}, line {number}: {texts[0]} {row[texts[0]]} stands there twice")
        seen.add(row[texts[0]])
    if not rows:
        raise BadUse(f"{path}: holds nothing; give another file")
    return rows


def given_records(path: Path, metric: str) -> list[Row]:
    """Records of an evaluation that have a figure.

    Raises:
        BadUse: as ``given_rows``, or the figure is missing or no pair of numbers, or counts
            nothing at all.
    """
    records = given_rows(path, "key", "cluster")
    total = 0.0
    for number, record in enumerate(records, 1):
        figures = record.get("figures")
        if not isinstance(figures, dict):
            raise BadUse(f"{path}: holds no records of an evaluation; give NAME.jsonl of one")
        if metric not in figures:
            raise BadUse(f"{path}: no figure {metric}; it has {', '.join(figures)}")
        pair = figures[metric]
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_number, pair)):
            raise BadUse(f"{path}, line {number}: {metric} is no pair of numbers")
        if pair[1] < 0:
            raise BadUse(f"{path}, line {number}: {metric} counts a negative number of marks")
        total += pair[1]
    if not total:
        raise BadUse(f"{path}: {metric}: no record counts, so it has no mean")
    return records


def _is_number(value: Any) -> bool:
    is_plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_plain and math.isfinite(value) and abs(value) < _LARGEST
