"""What Snakemake books for each rule, and the node-hours of a whole run."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from instella.cluster.needs import (
    LOCAL,
    UNKNOWN_MINUTES,
    Needs,
    base_stage,
    booked,
    minutes_planned,
    needs_of,
    usual,
)
from instella.cluster.site import Site
from instella.recipe.graph import Stage
from instella.recipe.settings import Placement, Recipe


def resources(
    pattern: str,
    graph: Mapping[str, Stage],
    recipe: Recipe,
    placement: Placement,
    site: Site,
) -> dict[str, Any]:
    """Resources of a rule, those that grow with the attempt as functions of it.

    Args:
        pattern: name of its stage; braces stand for a wildcard.
        graph, recipe, placement, site: of the run.
    """
    stage = _example(pattern, graph)
    if stage is None or placement.launcher == LOCAL:
        mem_mb, minutes = usual(stage)
        return {"mem_mb": _scaled(mem_mb), "runtime": _scaled(minutes)}
    chosen = needs_of(stage, recipe, placement, site)

    def of_attempt(name: str) -> Callable[..., int]:
        def value(wildcards: Any, attempt: int) -> int:
            return int(booked(chosen, site, attempt)[name])

        return value

    found = booked(chosen, site, 1)
    return {**found, **{name: of_attempt(name) for name in ("mem_mb", "runtime")}}


def _example(pattern: str, graph: Mapping[str, Stage]) -> Stage | None:
    """The first stage of the pattern; None where imports leave all of them out."""
    literal = [re.escape(part) for part in re.split(r"\{\w+\}", pattern)]
    names = re.compile("(.+)".join(literal))
    return next((stage for name, stage in graph.items() if names.fullmatch(name)), None)


def _scaled(number: int) -> Callable[..., int]:
    def value(wildcards: Any, attempt: int) -> int:
        return number * attempt

    return value


def needs(
    graph: Mapping[str, Stage], recipe: Recipe, placement: Placement, site: Site
) -> dict[str, Needs]:
    """What each stage that is booked needs; fetching runs where Snakemake does."""
    return {
        name: needs_of(stage, recipe, placement, site)
        for name, stage in graph.items()
        if stage.kind != "source"
    }


def report(
    graph: Mapping[str, Stage], recipe: Recipe, placement: Placement, site: Site
) -> list[str]:
    """Lines for a dry run: nodes and hours of every stage that trains, and their sum.

    Hours are the plan's where it knows them; else no more than a job may take.
    """
    planned = minutes_planned(recipe)
    lines, total, certain = [], 0.0, True
    for name, need in needs(graph, recipe, placement, site).items():
        if not need.trains:
            continue
        minutes = planned.get(base_stage(recipe, name))
        certain = certain and minutes is not None
        hours = (minutes or min(UNKNOWN_MINUTES, site.max_minutes)) / 60
        total += need.nodes * hours
        jobs = max(1, -(-int(hours * 60) // site.max_minutes))
        lines.append(
            f"  {name}: {need.nodes} nodes x {need.ranks} ranks, "
            f"{'about' if minutes else 'at most'} {hours:,.1f} h in {jobs} jobs of "
            f"{need.minutes} min, {need.nodes * hours:,.1f} node-hours"
        )
    sure = "about" if certain else "at most"
    return [f"training on the cluster, {sure} {total:,.1f} node-hours in all:", *lines]
