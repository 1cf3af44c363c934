"""Every published score beside ours: interval, verdict with its reason, deviations."""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev

from instella.errors import BadUse
from instella.evaluation.compare import (
    NOT_COMPARABLE,
    Printed,
    Score,
    Verdict,
    judged,
    verdict,
)
from instella.evaluation.ours import Gain, Key, Measured, Ours
from instella.evaluation.suites import Suite, Task, task_of
from instella.recipe.published import Published, Table

AVERAGE = "average"
UNPUBLISHED = "no published score can be read: it is an image"
NOT_MEASURED = "not measured"
NO_CHECKPOINT = "no checkpoint of this recipe"
NEEDS_JUDGE = "not measured: needs the endpoint of a judge"
JUDGED = "marked by a judge, and which state of it printed the score is unknown"


@dataclass(frozen=True)
class Row:
    """One published score.

    Attributes:
        table, model, benchmark: as the publication names them; ``average`` for its average,
            ``average gain over MODEL`` for a printed difference of two.
        published: the score; None when it is an image only.
        recomputed: for averages the mean of the published scores, formed as the table does.
        ours: our figure in the table's unit; None when not measured.
        verdict: consistent, higher, lower or not comparable, with the reason.
        deviations: ids of what differs in the protocol, barring or not.
        overlap: how many of its items the training data hold; empty when not checked.
    """

    table: str
    model: str
    benchmark: str
    published: float | None
    recomputed: float | None
    ours: Score | None
    verdict: Verdict
    deviations: tuple[str, ...]
    overlap: str = ""


@dataclass(frozen=True)
class Reconciliation:
    """What is compared: publications, their protocols, our figures.

    ``foreign`` tells why no figure of ours may be compared at all (another recipe); empty
    when they may.
    """

    published: Published
    suites: Mapping[str, Suite]
    measured: Measured
    ours: Mapping[Key, Ours]
    foreign: str = ""

    def rows(self) -> list[Row]:
        """All scores, averages and gains, in the order of the tables.

        Raises:
                BadUse: a figure of ours for a score that no table has or off its scale, or a deviation
                without an entry in ``deviations.yaml``.
        """
        self._check_names()
        rows = []
        for name, table in self.published.results.tables.items():
            for model, scores in table.scores.items():
                rows += [self._score(name, model, column, scores[column]) for column in scores]
            rows += [
                self._average(name, table, model, printed)
                for model, printed in (table.averages or {}).items()
            ]
            rows += [self._gain(gain) for gain in self.measured.gains if gain.table == name]
        known = {(row.table, row.model, row.benchmark) for row in rows}
        for key in self.ours:
            if key not in known:
                raise BadUse(f"{', '.join(key)}: no published table has this score; correct names")
        return rows

    def _check_names(self) -> None:
        """Models, tables and figures of ``measured.yaml`` and deviations of ours exist."""
        tables, seeds = self.published.results.tables, self.measured.seeds
        columns = self.measured.columns
        models = {model for table in tables.values() for model in table.scores}
        named: list[tuple[str, Container[str]]] = [
            (table, tables) for table in (*columns, seeds.table, seeds.average)
        ]
        named += [(gain.table, tables) for gain in self.measured.gains]
        named += [(gain.figure, self.published.figures.figures) for gain in self.measured.gains]
        named += [(model, models) for model in self.measured.models]
        for name, known in named:
            if name not in known:
                raise BadUse(f"suites/measured.yaml: {name}: not published; correct the name")
        ids = {item.id for item in self.published.deviations}
        for key, ours in self.ours.items():
            found = task_of(self.suites, key[0], key[2])
            if found is not None and not found[1].scale[0] <= ours.score.value <= found[1].scale[1]:
                raise BadUse(
                    f"{', '.join(key)}: {ours.score.value:g} is no score from "
                    f"{found[1].scale[0]:g} to {found[1].scale[1]:g}; give it in the table's unit"
                )
            for item in ours.deviations + ours.noted:
                if item not in ids:
                    raise BadUse(
                        f"{', '.join(key)}: deviation {item} has no entry in deviations.yaml"
                    )

    def _score(self, table: str, model: str, benchmark: str, printed: float | None) -> Row:
        ours = self.ours.get((table, model, benchmark))
        found = task_of(self.suites, table, benchmark)
        if bar := self._bar(model, printed, ours, found is not None and found[1].judged):
            judgement = Verdict(NOT_COMPARABLE, bar)
        elif found is None:
            judgement = Verdict(NOT_COMPARABLE, "its protocol is not among the suites")
        else:
            assert printed is not None and ours is not None
            judgement = verdict(ours.score, _printed(found, printed))
        return Row(
            table, model, benchmark, printed, None, ours.score if ours else None, judgement,
            self._differences(table, model, benchmark, ours), ours.overlap if ours else "",
        )  # fmt: skip

    def _differences(
        self, table: str, model: str, benchmark: str, ours: Ours | None
    ) -> tuple[str, ...]:
        if ours is not None:
            return ours.deviations + ours.noted
        absent = self.measured.not_measured
        columns = self.measured.columns.get(table, {})
        ruled_out = table in absent.tables and benchmark not in columns
        return (absent.deviation,) if ruled_out and model in self.measured.models else ()

    def _bar(
        self, model: str, printed: float | None, ours: Ours | None, is_judged: bool = False
    ) -> str:
        """Why nothing can be compared; empty when it can."""
        if printed is None:
            return UNPUBLISHED
        if ours is None:
            missing = NEEDS_JUDGE if is_judged else NOT_MEASURED
            return missing if model in self.measured.models else NO_CHECKPOINT
        if self.foreign:
            return self.foreign
        if ours.deviations:
            return f"protocol: {', '.join(ours.deviations)}"
        return JUDGED if is_judged else ""

    def _average(self, name: str, table: Table, model: str, printed: float | None) -> Row:
        scores = [table.scores.get(model, {}).get(column) for column in table.average_of]
        ours = self._mean(name, table, model)
        found = [task_of(self.suites, name, column) for column in table.average_of]
        is_judged = ours is not None and any(one is not None and one[1].judged for one in found)
        bar = self._bar(model, printed, ours, is_judged)
        if ours is None and not bar.startswith(UNPUBLISHED):
            count = sum((name, model, column) in self.ours for column in table.average_of)
            if count:
                bar = f"{count} of its {len(table.average_of)} scores are measured"
        if bar:
            judgement = Verdict(NOT_COMPARABLE, bar)
        else:
            assert printed is not None and ours is not None
            errors = [ours.score.error, self._published_error(name, table, scores)]
            if name == self.measured.seeds.average:
                errors.append(self.seed_deviation())
            judgement = judged(ours.score.value - printed, errors, self._rounding(name, table))
        differences = ours.deviations + ours.noted if ours else ()
        return Row(
            name, model, AVERAGE, printed, mean(scores), ours.score if ours else None,
            judgement, differences,
        )  # fmt: skip

    def _mean(self, name: str, table: Table, model: str) -> Ours | None:
        """Our average, formed as the table forms its own: the scales of the columns mixed."""
        found = [self.ours.get((name, model, column)) for column in table.average_of]
        parts = [part for part in found if part is not None]
        if not parts or len(parts) < len(found):
            return None
        value = math.fsum(part.score.value for part in parts) / len(parts)
        error = math.hypot(*(part.score.error for part in parts)) / len(parts)
        items = sum(part.score.items for part in parts)
        return Ours(
            Score(value, error, items, 0),
            tuple(dict.fromkeys(i for part in parts for i in part.deviations)),
            tuple(dict.fromkeys(i for part in parts for i in part.noted)),
        )

    def _published_error(self, name: str, table: Table, scores: Sequence[float | None]) -> float:
        """Standard error of a printed average; of an unknown score the largest possible."""
        errors = []
        for column, value in zip(table.average_of, scores, strict=True):
            found = task_of(self.suites, name, column)
            if found is None or found[1].items is None:
                raise BadUse(f"suites: {name}: {column}: an average needs its number of items")
            middle = sum(found[1].scale) / 2.0
            errors.append(_printed(found, middle if value is None else value).error)
        return math.hypot(*errors) / len(errors)

    def _rounding(self, name: str, table: Table) -> float:
        found = task_of(self.suites, name, table.average_of[0])
        assert found is not None  # _published_error asked first
        return 0.5 * 10.0 ** -found[0].digits

    def seed_deviation(self) -> float:
        """Standard deviation of the printed averages of runs with other seeds."""
        seeds = self.measured.seeds
        scores = self.published.results.tables[seeds.table].scores
        return stdev(scores[model][seeds.column] for model in seeds.models)

    def _gain(self, gain: Gain) -> Row:
        table = self.published.results.tables[gain.table]
        printed = self.published.figures.figures[gain.figure].value
        sides = [self._mean(gain.table, table, model) for model in (gain.model, gain.over)]
        benchmark = f"{AVERAGE} gain over {gain.over}"
        left, right = sides
        if left is None or right is None:
            reason = NOT_MEASURED if gain.model in self.measured.models else NO_CHECKPOINT
            judgement = Verdict(NOT_COMPARABLE, reason)
            return Row(gain.table, gain.model, benchmark, printed, None, None, judgement, ())
        value = left.score.value - right.score.value
        # The same items on both sides; taken as independent, which is cautious.
        error = math.hypot(left.score.error, right.score.error)
        ours = Ours(
            Score(value, error, left.score.items, 0),
            tuple(dict.fromkeys(left.deviations + right.deviations)),
            tuple(dict.fromkeys(left.noted + right.noted)),
        )
        if bar := self._bar(gain.model, printed, ours):
            judgement = Verdict(NOT_COMPARABLE, bar)
        else:
            scores = [
                [table.scores[model][column] for column in table.average_of]
                for model in (gain.model, gain.over)
            ]
            theirs = [self._published_error(gain.table, table, row) for row in scores]
            judgement = judged(value - printed, [error, *theirs], self._rounding(gain.table, table))
        return Row(
            gain.table, gain.model, benchmark, printed, None, ours.score, judgement,
            ours.deviations + ours.noted,
        )  # fmt: skip


def mean(scores: Sequence[float | None]) -> float | None:
    """Plain mean; None when there is no score, or one is unknown."""
    known = [value for value in scores if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(scores) else None


def _printed(found: tuple[Suite, Task], value: float) -> Printed:
    suite, task = found
    lowest, highest = task.scale
    return Printed(value, task.items, lowest, highest, suite.digits)
