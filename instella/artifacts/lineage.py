"""Who depends on whom, and which stage answers for a file that several artifacts share."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from instella.artifacts.manifest import NAME, Entry, Manifest, read_manifest
from instella.errors import VerificationError
from instella.recipe.graph import Stage
from instella.recipe.imports import ancestors


@dataclass(frozen=True)
class Owner:
    """A stage, and the path under which it publishes some bytes."""

    stage: str
    path: str


def dependants(graph: Mapping[str, Stage], name: str) -> tuple[str, ...]:
    """Stages that read from ``name``, directly or not, in the graph's order."""
    return tuple(other for other in graph if name in ancestors(graph, other))


def sound_manifests(results: Path, graph: Mapping[str, Stage]) -> dict[str, Manifest]:
    """Manifests of a results folder that can be read, by stage in the graph's order."""
    found = {}
    for name in graph:
        path = results / name / NAME
        if not path.is_file():
            continue
        try:
            manifest = read_manifest(path)
        except (VerificationError, FileNotFoundError):
            continue
        if manifest.stage == name:
            found[name] = manifest
    return found


def holders(manifests: Mapping[str, Manifest], entry: Entry) -> Iterator[Owner]:
    """Every stage and path with these bytes, in the order of the manifests.

    The first one answers for them: when it reruns, the bytes are back for all others,
    and a copied tokenizer file never makes a whole training rerun.
    """
    for name, manifest in manifests.items():
        for path, other in manifest.files.items():
            if other == entry:
                yield Owner(name, path)
