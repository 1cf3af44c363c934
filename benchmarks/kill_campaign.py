"""Kills a run of the nano recipe again and again, and counts how often the root is the same.

    .venv/bin/python -m benchmarks.kill_campaign [--kills 100] [--seed S]

Each kill forgets one stage, starts the run, kills the stage's process, one of its ranks,
Snakemake or everything with SIGKILL at a random moment, runs to the end and compares root
and manifests with those of an undisturbed run.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import record
from instella.prove.copies import clone
from instella.prove.finished import RecipeRun
from instella.prove.kills import Killed, Plan, go_on, kill, plans
from instella.prove.processes import kit

RECIPE = "nano"
TIMEOUT_SECONDS = 3600.0


@dataclass(frozen=True)
class Result:
    """One kill: what was planned, what it hit, and what was wrong afterwards."""

    plan: Plan
    killed: Killed
    faults: list[str]


def main() -> int:
    """Run the campaign, append a section to ``benchmarks/results.md``; 1 if a root differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, help="of stages, victims and moments (default: drawn)")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    with tempfile.TemporaryDirectory(prefix="kill-campaign-") as temporary:
        results, stages = campaign(Path(temporary), args.kills, seed)
    record("Kill campaign", summary(results, stages, seed))
    return int(any(result.faults for result in results))


def campaign(place: Path, count: int, seed: int) -> tuple[list[Result], int]:
    """Results of ``count`` kills of one run, and the number of its stages.

    A run in which a kill left faults is given up for a fresh copy.
    """
    undisturbed = RecipeRun(clone(place / "undisturbed", f"recipes/{RECIPE}.yaml"), RECIPE)
    done = kit(undisturbed.folder, "--cores", "2", timeout=TIMEOUT_SECONDS)
    if done.code:
        sys.exit(f"the undisturbed run failed: {done.err}")
    seconds = {stage: lines[-1]["seconds"] for stage, lines in undisturbed.journal().items()}
    graph = undisturbed.graph()
    run = RecipeRun(place / "killed", RECIPE)
    results = []
    for number, plan in enumerate(plans(graph, count, seed), 1):
        if not run.folder.exists():
            shutil.copytree(undisturbed.folder, run.folder, symlinks=True)
        started = time.monotonic()
        killed = kill(run, plan, seconds[plan.stage])
        faults = go_on(run, undisturbed, plan)
        results.append(Result(plan, killed, faults))
        state = "; ".join(faults) or "equal"
        print(f"{number}/{count} {plan} {killed}: {state}, {time.monotonic() - started:.0f} s")
        if faults:
            shutil.rmtree(run.folder)
    return results, len(graph)


def summary(results: Sequence[Result], stages: int, seed: int) -> list[str]:
    """Lines for the record."""
    good = sum(not result.faults for result in results)
    hits = Counter(result.plan.victim for result in results)
    per_stage = Counter(result.plan.stage for result in results)
    at_work = sum(result.killed.at_work for result in results)
    alive = sum(result.killed.found for result in results)
    writing = sum(result.killed.writing for result in results)
    aimed = sum(result.plan.writing for result in results)
    lines = [
        f"- recipe {RECIPE}, seed {seed}",
        f"- roots and manifests equal: {good} of {len(results)}",
        f"- killed: {', '.join(f'{victim} {hits[victim]}' for victim in sorted(hits))}",
        f"- the stage was computing at the kill: {at_work}; the victim lived: {alive}",
        f"- a checkpoint was being written at the kill: {writing}; {aimed} kills aimed at that",
        f"- stages killed: {len(per_stage)} of {stages}, each at least "
        f"{min(per_stage.values()) if len(per_stage) == stages else 0} times",
        "",
        "| stage | kills | equal |",
        "|---|---|---|",
    ]
    for stage in sorted(per_stage):
        equal = sum(result.plan.stage == stage and not result.faults for result in results)
        lines.append(f"| {stage} | {per_stage[stage]} | {equal} |")
    lines += [f"- {result.plan}: {'; '.join(result.faults)}" for result in results if result.faults]
    return lines


if __name__ == "__main__":
    sys.exit(main())
