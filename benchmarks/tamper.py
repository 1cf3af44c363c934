"""Tampers with a finished run again and again, and counts what the audit finds and names.

    .venv/bin/python -m benchmarks.tamper [--faults 1000] [--seed S] [--recipe FILE]

Each fault is put into the results or the store of the recipe's finished run, the audit runs,
and the fault is taken back. It is found when the audit names the stage and the file, or for
what spans files the place, that was altered. Nothing else may be altered meanwhile.
"""

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.plants import PLANTS, Target, planted
from instella.artifacts.check import Fault
from instella.artifacts.identity import Toolchain
from instella.artifacts.lineage import dependants
from instella.artifacts.store import Store
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe


@dataclass(frozen=True)
class Verdict:
    """One fault: its kind, what was done, whether it was named, and what the audit said."""

    kind: str
    text: str
    named: bool
    said: str


def campaign(target: Target, count: int, seed: int) -> list[Verdict]:
    """Plant ``count`` faults, kinds in turn, and audit each; a crash of the audit is raised."""
    chance = random.Random(seed)
    kinds = list(PLANTS)
    verdicts = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        with planted(target, kind, chance) as one:
            faults = target.audit()
            assert all(str(fault).isprintable() for fault in faults)
            named = one.is_named(faults)
            said = "; ".join(map(str, faults[:3])) or "clean"
            verdicts.append(Verdict(kind, one.text, named, said))
    return verdicts


def dependants_named(target: Target, faults: list[Fault]) -> bool:
    """Every fault of a stage's bytes names all stages that read from it."""
    return all(
        set(dependants(target.graph, fault.stage)) <= {*fault.dependants, fault.stage}
        for fault in faults
        if fault.kind in ("bytes", "manifest")
    )


def main() -> int:
    """Run the campaign, append a section to ``benchmarks/results.md``; 1 if a fault was missed."""
    from benchmarks.harness import record

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, help="of all choices (default: drawn)")
    parser.add_argument("--recipe", type=Path, default=Path("recipes/nano.yaml"))
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    recipe = read_recipe(args.recipe)
    store = Store(Path("store"))
    target = Target(
        Path("results") / recipe.name,
        store,
        build_graph(recipe),
        lambda: Toolchain.here(recipe.numerics, cache=store.root / "cache"),
        Path.cwd(),
    )
    if before := target.audit():
        sys.exit(f"the run is not sound before any fault: {before[0]}")
    started = time.monotonic()
    verdicts = campaign(target, args.faults, seed)
    after = target.audit()
    lines = summary(verdicts, seed, time.monotonic() - started)
    lines.append(f"- the run is {'sound' if not after else 'not sound'} again at the end")
    record("Tamper campaign", lines)
    return int(bool(after) or not all(verdict.named for verdict in verdicts))


def summary(verdicts: list[Verdict], seed: int, seconds: float) -> list[str]:
    """Lines for the record."""
    total, named = Counter(v.kind for v in verdicts), Counter(v.kind for v in verdicts if v.named)
    lines = [
        f"- seed {seed}, {len(verdicts)} faults in {seconds:.0f} s, one audit each",
        f"- found and named: {sum(named.values())} of {len(verdicts)}; the audit never crashed",
        "",
        "| kind | faults | named |",
        "|---|---|---|",
        *(f"| {kind} | {total[kind]} | {named[kind]} |" for kind in PLANTS if total[kind]),
        "",
    ]
    lines += [f"- missed: {v.kind}: {v.text}; audit: {v.said}" for v in verdicts if not v.named]
    return lines


if __name__ == "__main__":
    sys.exit(main())
