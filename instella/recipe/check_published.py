"""A recipe against what is published about it: one line for every fault."""

from dataclasses import asdict

from instella.recipe.leaves import leaves
from instella.recipe.origins import Coverage, cover, mismatches, origins
from instella.recipe.published import Group, Published
from instella.recipe.recompute import derived_mismatches, table_mismatches
from instella.recipe.settings import Recipe

# A value of these origins needs its reason.
NEEDS_NOTE = ("ours", "unknown")


def coverage(recipe: Recipe, published: Published) -> Coverage:
    """Every setting of the recipe with its origin."""
    sources = published.sources
    return cover(leaves(recipe), origins(sources.groups, sources.legend))


def faults(recipe: Recipe, published: Published) -> list[str]:
    """What differs, what has no origin or no reason, and which origin belongs to nothing.

    Each line says what, what was expected, and what was found.
    """
    matched = coverage(recipe, published)
    return [
        *_uncovered(matched),
        *_groups("sources.yaml", published.sources.groups, published),
        *_groups("beyond.yaml", published.beyond.groups, published),
        *mismatches(asdict(recipe), matched),
        *derived_mismatches(recipe, published.figures),
        *table_mismatches(published.results, published.protocols),
        *_deviations(published),
    ]


def _uncovered(matched: Coverage) -> list[str]:
    return [
        *(f"{path}: expected an origin in sources.yaml, found none" for path in matched.bare),
        *(f"{path}: expected one origin, found two of the same rank" for path in matched.ambiguous),
        *(
            f"sources.yaml: {origin.path}: expected a setting of the recipe, found none"
            for origin in matched.orphans
        ),
    ]


def _groups(file: str, groups: tuple[Group, ...], published: Published) -> list[str]:
    lines = []
    for index, group in enumerate(groups):
        confidence = group.confidence or published.sources.legend[group.sources[0]].confidence
        if confidence in NEEDS_NOTE and not group.note:
            lines.append(f"{file}: groups[{index}]: expected a note that gives the reason for "
                         f"'{confidence}', found none")  # fmt: skip
        if not group.values and not group.settings:
            lines.append(f"{file}: groups[{index}]: expected values or settings, found neither")
    return lines


def _deviations(published: Published) -> list[str]:
    seen: set[str] = set()
    lines = []
    for item in published.deviations:
        if item.id in seen:
            lines.append(f"deviations.yaml: {item.id}: expected an id of its own, found it twice")
        seen.add(item.id)
    return lines
