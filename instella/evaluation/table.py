"""The table of results: figures of every checkpoint, and the recipe's claims judged."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from instella.canonical import read_jsonl
from instella.errors import VerificationError
from instella.evaluation.records import Record, read_scores, samples
from instella.evaluation.statistics import Estimate, Sample, difference, estimate
from instella.recipe.settings import Claim

UNIGRAM = "unigram"
SEEDS = "seeds"


@dataclass(frozen=True)
class Judged:
    """A claim with what was measured."""

    claim: Claim
    measured: Estimate
    met: bool


@dataclass(frozen=True)
class Measured:
    """Folders of the evaluations by checkpoint, and of the unigram baseline if there is one."""

    checkpoints: Mapping[str, Path]
    baseline: Path | None
    resamples: int
    seed: int

    def samples(self, checkpoint: str, held_out: str, metric: str) -> list[Sample]:
        """Each item's share of a figure of one checkpoint (or of ``unigram``)."""
        folder = self.baseline if checkpoint == UNIGRAM else self.checkpoints[checkpoint]
        path = folder / f"{held_out}.jsonl" if folder is not None else None
        if path is None or not path.exists():
            raise VerificationError(
                f"{checkpoint} was not measured on {held_out}: add it to suites"
            )
        return samples(read_jsonl(path), metric)

    def seeds(self, held_out: str, metric: str) -> list[Sample]:
        """The average over the stage-2 seeds of each item's share."""
        names = [name for name in self.checkpoints if name.startswith("pretrain_stage2_seed")]
        columns = [self.samples(name, held_out, metric) for name in names]
        return [
            Sample(
                row[0].key,
                row[0].cluster,
                (
                    sum(sample.pair[0] for sample in row) / len(row),
                    sum(sample.pair[1] for sample in row) / len(row),
                ),
            )
            for row in zip(*columns, strict=True)
        ]


def judge(claim: Claim, measured: Measured) -> Judged:
    """Measure one claim: ``stage`` minus ``against`` and whether the bounds hold."""
    left = measured.samples(claim.stage, claim.set, claim.metric)
    if claim.against is None:
        value = estimate(left, measured.resamples, measured.seed)
    else:
        right = (
            measured.seeds(claim.set, claim.metric)
            if claim.against == SEEDS
            else measured.samples(claim.against, claim.set, claim.metric)
        )
        value = difference(left, right, measured.resamples, measured.seed)
    met = (
        (claim.at_least is None or value.value >= claim.at_least)
        and (claim.at_most is None or value.value <= claim.at_most)
        and (claim.interval_above is None or value.low > claim.interval_above)
    )
    return Judged(claim, value, met)


def results(
    measured: Measured, claims: Sequence[Claim], choices: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Everything the table shows, as plain values.

    Args:
        measured: where the records lie.
        claims: statements to judge.
        choices: for each multiple-choice set its ``metric`` and ``chance``.
    """
    judged = [judge(claim, measured) for claim in claims]
    return {
        "baseline": {} if measured.baseline is None else read_scores(measured.baseline),
        "choices": choices,
        "checkpoints": {name: read_scores(folder) for name, folder in measured.checkpoints.items()},
        "claims": [
            {**asdict(item.claim), "measured": asdict(item.measured), "met": item.met}
            for item in judged
        ],
    }


def markdown(values: Mapping[str, Any]) -> str:
    """The results as Markdown: one table of claims, one of figures for each set."""
    lines = ["# Results", "", "Figures with 95 % bootstrap intervals.", "", "## Claims", ""]
    lines += ["| claim | measured | interval | demanded | met |", "|---|---|---|---|---|"]
    for claim in values["claims"]:
        measured = claim["measured"]
        lines.append(
            f"| {claim['about']} | {_number(measured['value'])} | {_range(measured)} "
            f"| {_demand(claim)} | {'yes' if claim['met'] else '**no**'} |"
        )
    for held_out, metric in _columns(values):
        lines += ["", f"## {held_out}, {metric}", ""]
        chance = values["choices"].get(held_out, {}).get("chance")
        if chance is not None:
            lines += [f"Guessing scores {chance:g}.", ""]
        lines += ["| checkpoint | value | interval | items |", "|---|---|---|---|"]
        rows = {UNIGRAM: values["baseline"], **values["checkpoints"]}
        for name, scores in rows.items():
            figure = scores.get(held_out, {}).get(metric)
            if figure is not None:
                lines.append(
                    f"| {name} | {_number(figure['value'])} | {_range(figure)} | {figure['items']} |"
                )
    return "\n".join(lines) + "\n"


def _columns(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for scores in values["checkpoints"].values():
        for held_out, metrics in scores.items():
            chosen = values["choices"].get(held_out, {}).get("metric")
            for metric in metrics if chosen is None else [chosen]:
                found[held_out, metric] = None
    return sorted(found)


def _number(value: float) -> str:
    return f"{value:.4f}"


def _range(figure: Mapping[str, Any]) -> str:
    return f"[{_number(figure['low'])}, {_number(figure['high'])}]"


def _demand(claim: Record) -> str:
    parts = []
    if claim["at_least"] is not None:
        parts.append(f"at least {claim['at_least']:g}")
    if claim["at_most"] is not None:
        parts.append(f"at most {claim['at_most']:g}")
    if claim["interval_above"] is not None:
        parts.append(f"interval above {claim['interval_above']:g}")
    return ", ".join(parts)
