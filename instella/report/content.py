"""All that the page of a run says and that equal runs say alike, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from instella.artifacts.check import root
from instella.artifacts.compare import first_other
from instella.artifacts.identity import identity_key
from instella.artifacts.lineage import sound_manifests
from instella.artifacts.manifest import NAME, Manifest
from instella.errors import Incomplete, VerificationError
from instella.plan.plan import Assumptions, StagePlan
from instella.plan.report import SOURCES
from instella.prove.recorded import comparison, recipe_hash, recorded_file
from instella.recipe.check_published import coverage
from instella.recipe.graph import Stage
from instella.recipe.settings import Recipe
from instella.report.curves import chart_data, read_curves, summaries
from instella.report.files import Files
from instella.report.layout import draw
from instella.report.scores import published_of, reconciliation, results_of
from instella.report.settings import Stated, settings_of, stated
from instella.report.shares import shares_of, sources_of

MOST_FILES = 200
DONE, IMPORTED, STALE, DAMAGED, MISSING = "done", "imported", "stale", "damaged", "missing"


@dataclass(frozen=True)
class Shown:
    """A run to show: its recipe and where its results lie."""

    recipe: Recipe
    recipe_file: Path
    graph: Mapping[str, Stage]
    results: Path


def content_of(shown: Shown, planned: Sequence[StagePlan]) -> dict[str, Any]:
    """Everything of the page but times and machines.

    Args:
        shown: the run.
        planned: of its recipe, with the rows that were tokenized.

    Raises:
        BadUse: the recipe's published files are at fault.
    """
    recipe, graph = shown.recipe, shown.graph
    manifests = sound_manifests(shown.results, graph)
    files = Files(shown.results, manifests)
    published = published_of(recipe, shown.recipe_file)
    own = published if recipe.published is not None else None
    known = stated(shown.recipe_file, coverage(recipe, own).origin if own else {})
    states = _states(shown, manifests)
    curves = read_curves(files)
    rows = reconciliation(recipe, shown.recipe_file, published, files) if published else []
    return {
        "recipe": {
            "name": recipe.name,
            "about": recipe.about,
            "numerics": recipe.numerics,
            "file": shown.recipe_file.name,
            "hash": recipe_hash(shown.recipe_file),
        },
        "verdict": _verdict(shown, manifests),
        "stages": [
            _stage(stage, states[name], manifests.get(name), known) for name, stage in graph.items()
        ],
        "drawing": draw(graph),
        "charts": chart_data(curves),
        "summaries": summaries(curves),
        "results": results_of(files),
        "published": rows,
        "own_deviations": [" ".join(text.split()) for text in recipe.deviations],
        "deviations": [asdict(item) for item in own.deviations] if own else [],
        "legend": {code: item.title for code, item in own.sources.legend.items()} if own else {},
        "sources": sources_of(graph),
        "shares": shares_of(files, graph),
        "plan": {
            "stages": [asdict(item) for item in planned],
            "hardware": asdict(recipe.hardware) if recipe.hardware else None,
            "assumptions": asdict(Assumptions()),
            "rests_on": list(SOURCES),
        },
        "faults": files.faults,
    }


def _verdict(shown: Shown, manifests: Mapping[str, Manifest]) -> dict[str, Any]:
    """The root, and how it stands to the recorded one.

    ``state`` is equal, other, unrecorded, uncompared, foreign, or incomplete.
    """
    found: dict[str, Any] = {"root": None, "done": len(manifests), "stages": len(shown.graph)}
    try:
        found["root"] = root(shown.results, shown.graph)
    except (Incomplete, VerificationError):
        return {**found, "state": "incomplete", "text": "the run has not come to its end"}
    other = first_other(manifests, shown.graph, shown.recipe.numerics)
    if other is not None:
        text = f"these results were not made by this recipe: {other}"
        return {**found, "state": "foreign", "text": text}
    contents = {name: item.content for name, item in manifests.items()}
    compared = comparison(shown.recipe_file, contents)
    name = recorded_file(shown.recipe_file).name
    if compared is None:
        return {**found, "state": "unrecorded", "text": f"no root is recorded in {name}"}
    # The text names the recipe by its path, which is no property of the run.
    text = compared.text.replace(str(recorded_file(shown.recipe_file)), name)
    if text.startswith("equal"):
        return {**found, "state": "equal", "text": f"in {name}"}
    return {**found, "state": "other" if compared.is_other else "uncompared", "text": text}


def _states(shown: Shown, manifests: Mapping[str, Manifest]) -> dict[str, str]:
    found = {}
    for name, stage in shown.graph.items():
        manifest = manifests.get(name)
        if manifest is None:
            found[name] = DAMAGED if (shown.results / name / NAME).is_file() else MISSING
        elif any(
            source in manifests
            and manifest.identity["inputs"].get(role) != manifests[source].content
            for role, source in stage.inputs.items()
        ):
            found[name] = STALE
        else:
            found[name] = IMPORTED if manifest.origin == "imported" else DONE
    return found


def _stage(stage: Stage, state: str, manifest: Manifest | None, known: Stated) -> dict[str, Any]:
    value: dict[str, Any] = {
        "name": stage.name,
        "kind": stage.kind,
        "state": state,
        "inputs": dict(stage.inputs),
        "settings": [asdict(item) for item in settings_of(stage, known)],
        "content": None,
        "size": None,
        "files": [],
        "more_files": 0,
        "facts": {},
    }
    if manifest is None:
        return value
    listed = sorted(manifest.files.items())
    value["content"] = manifest.content
    value["size"] = sum(entry.size for entry in manifest.files.values())
    value["files"] = [
        {
            "path": path,
            "size": entry.size,
            "sha256": entry.sha256,
            "ledger": manifest.ledgers.get(path),
        }
        for path, entry in listed[:MOST_FILES]
    ]
    value["more_files"] = max(0, len(listed) - MOST_FILES)
    value["facts"] = _facts(manifest)
    return value


def _facts(manifest: Manifest) -> dict[str, str]:
    """What an identity holds beside settings and inputs, and its key."""
    identity = manifest.identity
    found = {"origin": manifest.origin, "identity": identity_key(identity)}
    for name in ("code", "lock", "image"):
        if identity.get(name) is not None:
            found[name] = str(identity[name])
    numerics = identity.get("numerics")
    if isinstance(numerics, Mapping):
        found["numerics"] = str(numerics.get("class"))
    return found
