"""Says in one sentence why a stage would run, or why not."""

from collections.abc import Mapping
from pathlib import Path

from instella.artifacts.check import STALE, check_results
from instella.artifacts.compare import differences
from instella.artifacts.identity import Toolchain, identity, identity_key
from instella.artifacts.lineage import ancestors, sound_manifests
from instella.artifacts.manifest import NAME, Manifest
from instella.artifacts.store import Store
from instella.recipe.graph import Stage

SHOWN = 3


def why(
    name: str, results: Path, store: Store, graph: Mapping[str, Stage], toolchain: Toolchain
) -> str:
    """The sentence for stage ``name``; arguments as for ``check.audit``."""
    manifests = sound_manifests(results, graph)
    absent = [source for source in _unique(graph[name]) if source not in manifests]
    if absent:
        return f"{name} would run after {_and(absent)}, which must be made first."
    stage = graph[name]
    contents = {role: manifests[source].content for role, source in stage.inputs.items()}
    reason = _reason(name, results, store, graph, toolchain, contents, manifests.get(name))
    if reason is None:
        return _why_not(name, graph, store, toolchain, manifests)
    if store.action(identity_key(identity(stage, toolchain, contents))) is not None:
        return (
            f"{name} would take its result from the store, or compute it if the store's bytes "
            f"are bad, because {reason}."
        )
    return f"{name} would run, because {reason}."


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
    if manifest.origin == "imported":
        return None
    found = differences(manifest, stage, toolchain, store, contents)
    return _some([str(item) for item in found]) if found else None


def _why_not(
    name: str,
    graph: Mapping[str, Stage],
    store: Store,
    toolchain: Toolchain,
    manifests: Mapping[str, Manifest],
) -> str:
    if manifests[name].origin == "imported":
        return f"{name} would not run: its result was imported."
    above = ancestors(graph, name)
    for other in (item for item in graph if item in above):
        inputs = graph[other].inputs
        if other not in manifests or any(source not in manifests for source in inputs.values()):
            return f"{name} would run only if {other}, which has to be made again, changes."
        contents = {role: manifests[source].content for role, source in inputs.items()}
        changed = _changed(manifests[other], graph[other], store, toolchain, contents)
        if changed is not None:
            return (
                f"{name} would run only if {other} makes other bytes, which would run, "
                f"because {changed}."
            )
    return f"{name} would not run: settings, code, lock file and inputs are those of its result."


def _unique(stage: Stage) -> list[str]:
    return list(dict.fromkeys(stage.inputs.values()))


def _some(items: list[str]) -> str:
    more = len(items) - SHOWN
    return _and(items[:SHOWN]) + (f" (and {more} more)" if more > 0 else "")


def _and(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
