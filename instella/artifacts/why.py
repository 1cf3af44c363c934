"""Says in one sentence why a stage would run, or why not."""

from collections.abc import Mapping
from pathlib import Path

from instella.artifacts.check import STALE, check_results
from instella.artifacts.compare import differences, origin_of
from instella.artifacts.foresee import Foreseen, foresee
from instella.artifacts.identity import Toolchain, identity, identity_key
from instella.artifacts.lineage import sound_manifests
from instella.artifacts.manifest import NAME, Manifest
from instella.artifacts.store import Store
from instella.recipe.graph import Stage
from instella.recipe.imports import IMPORT, ancestors

SHOWN = 3


def why(
    name: str, results: Path, store: Store, graph: Mapping[str, Stage], toolchain: Toolchain
) -> str:
    """The sentence for stage ``name``; arguments as for ``check.audit``."""
    manifests = sound_manifests(results, graph)
    plans = foresee(graph, store, toolchain, manifests)
    stage = graph[name]
    # What each input would be: placed, taken from the store, or else what it is.
    inputs = {source: plans[source].manifest or manifests.get(source) for source in _unique(stage)}
    absent = [source for source, manifest in inputs.items() if manifest is None]
    if absent:
        return f"{name} would run after {_and(absent)}, which must be made first."
    found = {source: item.content for source, item in inputs.items() if item is not None}
    contents = {role: found[source] for role, source in stage.inputs.items()}
    reason = _reason(name, results, store, graph, toolchain, contents, manifests.get(name))
    if reason is None:
        return _why_not(name, graph, store, toolchain, manifests, plans)
    is_stored = store.action(identity_key(identity(stage, toolchain, contents))) is not None
    if stage.is_imported:
        return _why_import(stage, is_stored, reason)
    if is_stored:
        return (
            f"{name} would be taken from the store, or computed if the store's bytes are bad, "
            f"because {reason}."
        )
    return f"{name} would run, because {reason}."


def _why_import(stage: Stage, is_stored: bool, reason: str) -> str:
    if is_stored:
        return (
            f"{stage.name} would be taken from the store, which holds its import "
            f"({_published(stage)}), because {reason}."
        )
    return (
        f"{stage.name} has to be imported with `instella import FOLDER --as {stage.name}` "
        f"({_published(stage)}), because {reason}."
    )


def _published(stage: Stage) -> str:
    """What an imported stage stands for, in words."""
    item = stage.settings[IMPORT]
    origin = "a folder"
    if item.repository is not None:
        origin = f"{item.repository} at commit {item.revision[:12]}"
    return f"content {item.content[:16]}... of {origin}"


def _reason(
    name: str,
    results: Path,
    store: Store,
    graph: Mapping[str, Stage],
    toolchain: Toolchain,
    contents: Mapping[str, str],
    manifest: Manifest | None,
) -> str | None:
    if manifest is None:
        there = (results / name / NAME).exists()
        return "its manifest is damaged" if there else "it has no result yet"
    changed = _changed(manifest, graph[name], store, toolchain, contents)
    if changed is not None:
        return changed
    faults = [fault for fault in check_results(results, store, graph) if fault.stage == name]
    bad = [f"{fault.file} is not as recorded" for fault in faults if fault.kind != STALE]
    return _some(bad) if bad else None


def _changed(
    manifest: Manifest,
    stage: Stage,
    store: Store,
    toolchain: Toolchain,
    contents: Mapping[str, str],
) -> str | None:
    if manifest.origin != origin_of(stage):
        return (
            "the recipe imports it, and its result was computed"
            if stage.is_imported
            else "its result was imported, and the recipe does not import it"
        )
    found = differences(manifest, stage, toolchain, store, contents)
    return _some([str(item) for item in found]) if found else None


def _why_not(
    name: str,
    graph: Mapping[str, Stage],
    store: Store,
    toolchain: Toolchain,
    manifests: Mapping[str, Manifest],
    plans: Mapping[str, Foreseen],
) -> str:
    would = "would have to be imported again" if graph[name].is_imported else "would run"
    above = ancestors(graph, name)
    for other in (item for item in graph if item in above and plans[item].manifest is None):
        inputs = graph[other].inputs
        if other not in manifests or any(source not in manifests for source in inputs.values()):
            return f"{name} {would} only if {other}, which has to be made again, changes."
        contents = {role: manifests[source].content for role, source in inputs.items()}
        changed = _changed(manifests[other], graph[other], store, toolchain, contents)
        if changed is not None:
            return (
                f"{name} {would} only if {other} makes other bytes, which would run, "
                f"because {changed}."
            )
    if graph[name].is_imported:
        return f"{name} would not run: the recipe imports it, as {_published(graph[name])}."
    return f"{name} would not run: settings, code, lock file and inputs are those of its result."


def _unique(stage: Stage) -> list[str]:
    return list(dict.fromkeys(stage.inputs.values()))


def _some(items: list[str]) -> str:
    more = len(items) - SHOWN
    return _and(items[:SHOWN]) + (f" (and {more} more)" if more > 0 else "")


def _and(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
