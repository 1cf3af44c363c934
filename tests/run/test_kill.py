"""SIGKILL at a random moment of a stage: the next run ends with the same bytes."""

import random

import pytest
from run_helpers import Run, assert_nothing_runs

from instella.artifacts.lineage import dependants
from instella.prove.copies import PROJECT
from instella.prove.finished import computed
from instella.prove.kills import OTHER_VICTIMS, RANK, VICTIMS, Plan, go_on, kill
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

GRAPH = build_graph(read_recipe(PROJECT / "recipes" / "nano.yaml"))


def _one_of_each_family() -> list[tuple[str, str]]:
    """For kinds whose names begin alike the stage that fewest depend on; victims in turn."""
    chosen: dict[str, str] = {}
    for name in sorted(GRAPH, key=lambda name: len(dependants(GRAPH, name))):
        chosen.setdefault(GRAPH[name].kind.partition("_")[0], name)
    pairs, others = [], 0
    trained = [name for name in chosen.values() if GRAPH[name].trains]
    for name in chosen.values():
        if name in trained:
            pairs.append((name, VICTIMS[trained.index(name) % len(VICTIMS)]))
        else:
            pairs.append((name, OTHER_VICTIMS[others % len(OTHER_VICTIMS)]))
            others += 1
    return pairs


@pytest.mark.parametrize(("stage", "victim"), _one_of_each_family())
def test_killed_run_goes_on(nano_run: Run, nano_copy: Run, stage: str, victim: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    ranks = 2 if victim == RANK else 1
    writing = GRAPH[stage].trains and chance.random() < 0.5
    plan = Plan(stage, victim, chance.random(), writing, ranks)
    seconds = nano_run.journal()[stage][-1]["seconds"]
    killed = kill(nano_copy, plan, seconds)
    print(f"seed {seed}: {plan}, which took {seconds} s: {killed}")
    # What reads from the stage has its result already; making it a hit again takes time only.
    assert go_on(nano_copy, nano_run, plan, f"results/nano/{stage}/manifest.json") == []
    # Snakemake may have begun others, when the stage ended before the kill.
    assert nano_copy.run()[0].code == 0
    assert computed(nano_copy.outcomes_since(nano_run.journal())) == {stage}
    assert_nothing_runs(nano_copy)


def test_every_victim_is_killed() -> None:
    assert {victim for _, victim in _one_of_each_family()} == set(VICTIMS)
