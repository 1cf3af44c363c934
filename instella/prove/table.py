"""The table of ``instella prove``, and its verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instella.artifacts.journal import host_facts
from instella.prove.recorded import first_difference, root_of
from instella.prove.rows import EQUAL, NOT_RUN, Row, Task

SHOWN = 16


@dataclass(frozen=True)
class Verdict:
    """Whether all is well, and the line that says so."""

    good: bool
    text: str


def judgement(rows: Sequence[Row], recorded: Mapping[str, str] | None) -> Verdict:
    """Are all rows that ran equal, and equal to the recorded root?

    Args:
        rows: at least one; those of emulated CPUs may be of another recipe.
        recorded: stage to content of the recorded root, or None if there is none.
    """
    bad = [f"{row.name}: {row.why}" for row in rows if row.status not in (EQUAL, NOT_RUN)]
    if bad:
        return Verdict(False, f"NOT EQUAL: {'; '.join(bad)}")
    ran = [row for row in rows if row.manifests]
    if not ran:
        return Verdict(False, "NOT EQUAL: no row could be run")
    left_out = len(rows) - len(ran)
    text = f"equal: {len(ran)} rows" + (f", {left_out} not run" if left_out else "")
    if recorded is None:
        return Verdict(True, f"{text}; no recorded root to compare with")
    difference = first_difference(recorded, ran[0].contents)
    if difference:
        return Verdict(False, f"NOT EQUAL to the recorded root: {difference}")
    return Verdict(True, f"{text}, and equal to the recorded root")


def table(rows: Sequence[Row]) -> str:
    """The rows with their roots, and below them why one differs, failed or was not run."""
    cells = [("row", "root", "", "seconds", "varied")]
    for row in rows:
        cells.append((
            row.name, (row.root or "-")[:SHOWN], row.status,
            f"{row.seconds:.0f}" if row.status != NOT_RUN else "-", row.varied,
        ))  # fmt: skip
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    lines = [
        "  ".join([
            line[0].ljust(widths[0]), line[1].ljust(widths[1]), line[2].ljust(widths[2]),
            line[3].rjust(widths[3]), line[4],
        ])
        for line in cells
    ]  # fmt: skip
    reasons = [f"{row.name}: {row.status}: {row.why}" for row in rows if row.why]
    return "\n".join([*lines, *reasons])


def report(
    task: Task, rows: Sequence[Row], recorded: Mapping[str, str] | None, verdict: Verdict
) -> dict[str, Any]:
    """Everything as plain JSON values."""
    return {
        "recipe": str(task.recipe_file),
        "seed": task.seed,
        "machine": host_facts(),
        "good": verdict.good,
        "verdict": verdict.text,
        "recorded": None if recorded is None else root_of(recorded),
        "rows": [
            {
                "name": row.name,
                "varied": row.varied,
                "status": row.status,
                "why": row.why,
                "seconds": round(row.seconds, 1),
                "root": row.root,
                "folder": str(row.folder) if task.keep and row.folder else None,
                "contents": row.contents,
            }
            for row in rows
        ],
    }
