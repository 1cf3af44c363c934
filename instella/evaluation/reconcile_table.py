"""The reconciliation as plain values and as Markdown."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from instella.evaluation.compare import LEVEL, NOT_COMPARABLE, Score
from instella.evaluation.reconcile import AVERAGE, Row

COLUMNS = (
    "model", "benchmark", "published", "ours", "interval", "verdict", "reason", "deviations",
    "overlap with training data",
)  # fmt: skip


def plain(rows: Sequence[Row]) -> dict[str, Any]:
    """One object: ``rows`` with their intervals, and ``verdicts`` with their counts."""
    listed = []
    for row in rows:
        entry = asdict(row)
        entry["interval"] = list(row.ours.interval()) if row.ours else None
        listed.append(entry)
    return {"rows": listed, "verdicts": _counts(rows)}


def markdown(rows: Sequence[Row]) -> str:
    """A table for each published one; a score that is an image only reads ``unpublished``."""
    lines = ["# Reconciliation", ""]
    for table in dict.fromkeys(row.table for row in rows):
        lines += [f"## {table}", "", _cells(COLUMNS), "|" + "---|" * len(COLUMNS)]
        own = [row for row in rows if row.table == table]
        lines += [_line(row, _digits(own)) for row in own]
        lines.append("")
    counts = _counts(rows)
    said = ", ".join(f"{number} {word}" for word, number in counts.items())
    compared = len(rows) - counts.get(NOT_COMPARABLE, 0)
    lines += [f"{len(rows)} published scores: {said}.", ""]
    if compared:
        chance = compared * (1.0 - LEVEL)
        lines += [f"At {LEVEL:.0%}, up to {chance:.1f} of {compared} differ by chance.", ""]
    return "\n".join(lines)


def _counts(rows: Sequence[Row]) -> dict[str, int]:
    return dict(sorted(Counter(row.verdict.word for row in rows).items()))


def _digits(rows: Sequence[Row]) -> int:
    """Decimals of a table's scores; a file of numbers does not keep the zeros at their ends."""
    printed = [f"{row.published:.10g}" for row in rows if row.published is not None]
    return max((len(text.partition(".")[2]) for text in printed), default=0)


def _line(row: Row, digits: int) -> str:
    published = "unpublished" if row.published is None else f"{row.published:.{digits}f}"
    if row.recomputed is not None:
        published += f" (mean {row.recomputed:.2f})"
    return _cells((
        row.model, row.benchmark, published, _value(row.ours), _interval(row.ours),
        row.verdict.word, row.verdict.reason, ", ".join(row.deviations),
        row.overlap or ("not checked" if row.ours and not row.benchmark.startswith(AVERAGE) else ""),
    ))  # fmt: skip


def _cells(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _value(score: Score | None) -> str:
    return "" if score is None else f"{score.value:.2f}"


def _interval(score: Score | None) -> str:
    return "" if score is None else "[{:.2f}, {:.2f}]".format(*score.interval())
