"""What the four stages share: rows in, rows and counts out, in order, whoever finishes first."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from instella.artifacts.job import Job
from instella.canonical import json_bytes, parse_json, write_json, write_jsonl
from instella.errors import VerificationError
from instella.synthesis.endpoint import Endpoint
from instella.synthesis.replies import Rejected, Row
from instella.synthesis.teacher import Teacher, teacher_of
from instella.synthesis.transcript import FILE

ROWS = "rows.jsonl"
REPORT = "report.json"

Reply = TypeVar("Reply")


@dataclass
class Outcome:
    """What became of one row.

    Attributes:
        rows: what goes into the artifact.
        lost: why nothing does, or None.
        attempts: replies asked for.
        faults: replies that were rejected, by reason.
        log: requests in a transcript, in the order in which they were made.
    """

    rows: list[Row] = field(default_factory=list)
    lost: str | None = None
    attempts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)

    def first_accepted(self, attempts: int, attempt: Callable[[int], Reply]) -> Reply | None:
        """The first of so many attempts that is not rejected; ``lost`` tells why none was."""
        for number in range(attempts):
            reply = self.accepted(partial(attempt, number))
            if reply is not None:
                return reply
        return None

    def accepted(self, attempt: Callable[[], Reply]) -> Reply | None:
        """What ``attempt`` gives, or None and a count when it is rejected."""
        self.attempts += 1
        try:
            return attempt()
        except Rejected as error:
            self.faults[str(error)] += 1
            self.lost = str(error)
            return None


Work = Callable[[Teacher, Row], Outcome]


def read_rows(folder: Path) -> Iterator[Row]:
    """The rows of an earlier step, one at a time."""
    with (folder / ROWS).open("rb") as file:
        for number, line in enumerate(file, 1):
            row = parse_json(line, f"{folder / ROWS} row {number}")
            if not isinstance(row, dict) or not isinstance(row.get("key"), str):
                raise VerificationError(f"{folder / ROWS} row {number}: not a row of a step")
            yield row


def is_unused(job: Job) -> bool:
    """No mixture names the synthetic problems: the artifact says so and holds no row."""
    if job.settings["teacher"] is not None:
        return False
    write_jsonl(job.output / ROWS, [])
    write_json(job.output / REPORT, {"used": False})
    job.report.say("no mixture names the source 'synthetic'; nothing to do")
    return True


def run_step(job: Job, rows: Iterable[Row], total: int | None, work: Work) -> None:
    """Do ``work`` for each row and write ``rows.jsonl`` and ``report.json``.

    With an endpoint as teacher also ``transcript.jsonl``: the replies the rows were made
    from, in the order of the rows. A step whose every row is lost is an error.

    Args:
        job: of the stage; its settings hold ``teacher`` and ``seed``.
        rows: what the step works on.
        total: how many there are, for the progress line.
        work: called in up to ``teacher.connections`` threads at once; must not depend on
            other rows.
    """
    teacher = teacher_of(job)
    try:
        counts = _Counts()
        outcomes = _in_order(rows, lambda row: work(teacher, row), teacher.connections)
        entries = job.scratch / "entries.part"
        with entries.open("wb") as kept:
            made = _made(job, teacher, outcomes, total, counts, kept)
            accepted = write_jsonl(job.output / ROWS, made)
        if isinstance(teacher, Endpoint):
            entries.replace(job.output / FILE)
        else:
            entries.unlink()
    finally:
        teacher.close()
    _write_report(job, teacher, accepted, counts)


@dataclass
class _Counts:
    rows_in: int = 0
    attempts: int = 0
    replies: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)


def _made(
    job: Job, teacher: Teacher, outcomes: Iterator[Outcome], total: int | None, counts: _Counts,
    entries: Any,
) -> Iterator[Row]:  # fmt: skip
    for outcome in outcomes:
        counts.rows_in += 1
        counts.attempts += outcome.attempts
        counts.replies += len(outcome.log)
        counts.faults += outcome.faults
        if not outcome.rows:
            counts.lost[outcome.lost or "no reply"] += 1
        if isinstance(teacher, Endpoint):
            for request in outcome.log:
                entries.write(json_bytes(teacher.transcript.get(request)))
        yield from outcome.rows
        if total:
            job.report.step(counts.rows_in, total)


def _in_order(
    rows: Iterable[Row], work: Callable[[Row], Outcome], connections: int
) -> Iterator[Outcome]:
    """Outcomes in the order of the rows; at most twice as many under way as connections."""
    if connections == 1:
        yield from map(work, rows)
        return
    waiting: deque[Future[Outcome]] = deque()
    with ThreadPoolExecutor(connections) as pool:
        try:
            for row in rows:
                waiting.append(pool.submit(work, row))
                if len(waiting) >= 2 * connections:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _write_report(job: Job, teacher: Teacher, accepted: int, counts: _Counts) -> None:
    settings = job.settings["teacher"]
    report = {
        "used": True,
        "teacher": {"kind": settings.kind, "model": settings.model},
        "rows_in": counts.rows_in,
        "rows_lost": dict(sorted(counts.lost.items())),
        "accepted": accepted,
        "attempts": counts.attempts,
        "rejected_replies": dict(sorted(counts.faults.items())),
        # Replies of a model elsewhere cannot be computed again, only read again.
        "recorded_replies": counts.replies if isinstance(teacher, Endpoint) else None,
    }
    if not accepted:
        raise VerificationError(
            f"{job.stage}: none of {counts.rows_in} rows is left ({report['rows_lost']}); look "
            "at the teacher and at the problems"
        )
    write_json(job.output / REPORT, report)
    job.report.say(f"{accepted:,} rows from {counts.rows_in:,}, {counts.attempts:,} attempts")
