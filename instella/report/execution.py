"""What one execution took, and where: all that may differ between two runs of equal bytes.

Journals say it, and nobody signs them. Only times and peak memory were measured; what a
stage computes is a formula of ``instella.plan``, and energy and cost follow from the power and
the price that the caller states.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.artifacts import journal
from instella.artifacts.identity import identity_key
from instella.artifacts.manifest import Manifest
from instella.artifacts.places import STATEMENTS
from instella.audit.journals import read_lines
from instella.canonical import sha256_file
from instella.errors import VerificationError
from instella.plan.plan import StagePlan

# of instella.statements: folder to the end of its files' names, which begin with their stage
_ENDINGS = {"provenance": ".intoto.jsonl", "scores": ".intoto.jsonl", "models": ".sig"}
MOST_BYTES = 64 << 20

# not its name, which must not be published
_HOST = ("system", "cpu", "libc", "python", "torch")

Row = dict[str, Any]


@dataclass(frozen=True)
class Rates:
    """What the caller states of the machine: watts of all of it, and the price of a kWh."""

    watts: float | None = None
    price: float | None = None


def execution_of(
    results: Path,
    manifests: Mapping[str, Manifest],
    planned: Sequence[StagePlan],
    rates: Rates,
) -> dict[str, Any]:
    """Rows of the stages that have a journal, machines, and sums."""
    flops = {
        item.stage: item.flops / item.runs for item in planned if item.flops is not None
    }  # fmt: skip
    rows, machines = [], []
    for name, manifest in manifests.items():
        line = _line(results, name, manifest)
        if line is None:
            continue
        base = name.partition("_seed")[0]
        row = {key: line[key] for key in ("started", "seconds", "outcome", "ranks")}
        row |= {"stage": name, "peak_rss": _count(line.get("peak_rss")), "flops": None}
        if manifest.kind != "merge" and base in flops:
            row["flops"] = flops[base]
        rows.append(row)
        machine = {key: str(line.get(key)) for key in _HOST if line.get(key) is not None}
        machine["cores"] = str(line.get("cores"))
        if machine not in machines:
            machines.append(machine)
    computed = sum(float(row["seconds"]) for row in rows if row["outcome"] == "computed")
    kwh = None if rates.watts is None else rates.watts * computed / 3.6e6
    return {
        "stages": rows,
        "machines": machines,
        "statements": list(_statements(results, manifests)),
        "running": sorted(journal.running_keys(results)),
        "computed_seconds": round(computed, 3),
        "from_store": sum(row["outcome"] != "computed" for row in rows),
        "flops": sum(row["flops"] or 0.0 for row in rows),
        "peak_rss": max((row["peak_rss"] or 0 for row in rows), default=0),
        "watts": rates.watts,
        "kwh": kwh,
        "price": rates.price,
        "cost": None if kwh is None or rates.price is None else kwh * rates.price,
    }


def _statements(results: Path, manifests: Mapping[str, Manifest]) -> Iterator[Row]:
    """Signed statements beside the stages: each file with its SHA-256, and its stage if it has one.

    Another signer makes other files of the same run. Nothing is verified here.
    """
    folder = results / STATEMENTS
    expected = {"run.intoto.jsonl": ""}
    for name in manifests:
        expected |= {f"{part}/{name}{ending}": name for part, ending in _ENDINGS.items()}
    for file, stage in expected.items():
        path = folder / file
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_BYTES:
            yield {"file": file, "stage": stage, "sha256": sha256_file(path)}


def _line(results: Path, name: str, manifest: Manifest) -> Row | None:
    """The newest line that tells how the stage's artifact was computed, else of any execution."""
    try:
        lines, _ = read_lines(results / journal.FOLDER / f"{name}.jsonl")
    except VerificationError:
        return None
    key = identity_key(manifest.identity)
    own = [line for line in lines if line["identity"] == key]
    chosen = [line for line in own if line["outcome"] == "computed"] or own
    return chosen[-1] if chosen else None


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
