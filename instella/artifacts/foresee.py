"""What a run would find without computing anything: in its results, or in the store."""

from collections.abc import Mapping
from dataclasses import dataclass

from instella.artifacts.identity import Toolchain, identity, identity_key
from instella.artifacts.manifest import Manifest
from instella.artifacts.store import Store
from instella.recipe.graph import Stage


@dataclass(frozen=True)
class Foreseen:
    """A stage of a run to come.

    Attributes:
        key: of its identity; None if an input has to be computed first.
        manifest: what it would have without computing; None if it would compute.
    """

    key: str | None = None
    manifest: Manifest | None = None


def foresee(
    graph: Mapping[str, Stage],
    store: Store,
    toolchain: Toolchain,
    manifests: Mapping[str, Manifest],
) -> dict[str, Foreseen]:
    """Every stage of a graph, in its order.

    Args:
        graph: of the recipe.
        store: whose records are looked up.
        toolchain: of this tree.
        manifests: of the results that are there, by stage.
    """
    found: dict[str, Foreseen] = {}
    for name, stage in graph.items():
        inputs = {role: found[source].manifest for role, source in stage.inputs.items()}
        contents = {role: item.content for role, item in inputs.items() if item is not None}
        if len(contents) < len(inputs):
            found[name] = Foreseen()
            continue
        now = identity(stage, toolchain, contents)
        key, placed = identity_key(now), manifests.get(name)
        if placed is not None and identity_key(placed.identity) == key:
            found[name] = Foreseen(key, placed)
        else:
            found[name] = Foreseen(key, store.action(key))
    return found
