"""Questions about a finished or half-finished run: is it sound, and what is its root?

``check_results`` answers fast, for a workflow engine that starts; ``audit`` believes
nothing and reads every byte.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from instella.artifacts.compare import differences, origin_of
from instella.artifacts.identity import Toolchain, identity_key
from instella.artifacts.lineage import dependants, holders
from instella.artifacts.manifest import NAME, Entry, Manifest, read_manifest
from instella.artifacts.stamps import Stamps
from instella.artifacts.store import Store, describe, examine_files, state_of
from instella.canonical import json_bytes, sha256_bytes
from instella.errors import Incomplete, VerificationError
from instella.recipe.graph import Stage
from instella.terminal import plain

BYTES, VIEW, MANIFEST, STALE = "bytes", "view", "manifest", "stale input"
LEDGER, RECORD = "ledger", "record"
MISSING, EXTRA, DIFFERS = "missing stage", "extra stage", "differs from this tree"
SHOWN = 4

Examine = Callable[[Mapping[Path, Entry]], Mapping[Path, str]]


@dataclass(frozen=True)
class Fault:
    """One thing that is not as it should be.

    Attributes:
        stage: stage that has to be made again.
        kind: ``bytes``, ``view``, ``manifest``, ``ledger``, ``record``, ``stale input``,
            ``missing stage``, ``extra stage`` or ``differs from this tree``; an audit has
            more (``instella.audit``).
        file: path in the artifact, or the field of the identity.
        expected, found: what should be there and what is.
        dependants: stages that read from it, directly or not.
    """

    stage: str
    kind: str
    file: str
    expected: str
    found: str
    dependants: tuple[str, ...] = ()

    def __str__(self) -> str:
        # A foreign file may have any name; shown as it is, it could end the line.
        stage, file, expected, found = map(
            plain, (self.stage, self.file, self.expected, self.found)
        )
        text = f"{stage}: {self.kind}: {file}: expected {expected}, found {found}"
        if self.kind == MISSING or not self.dependants:
            return text
        return f"{text}; read by {some_names(self.dependants)}"


def some_names(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def root(results: Path, graph: Mapping[str, Stage]) -> str:
    """Root of a run: SHA-256 of the canonical JSON ``{stage: content}``, 64 hex digits.

    Raises:
        Incomplete: stages without a manifest, the first of them named.
        VerificationError: a damaged manifest.
    """
    missing = [name for name in graph if not (results / name / NAME).is_file()]
    if missing:
        raise Incomplete(
            f"{results}: {len(missing)} of {len(graph)} stages have no result: "
            f"{some_names(missing)}; run the recipe to its end"
        )
    contents = {name: _own_manifest(results, graph[name]).content for name in graph}
    return sha256_bytes(json_bytes(contents))


def check_results(results: Path, store: Store, graph: Mapping[str, Stage]) -> list[Fault]:
    """Faults of the stages that have a manifest; reads only what changed since last time.

    Args:
        results: folder of one recipe's results.
        store: where the bytes lie.
        graph: the recipe's graph.
    """
    manifests, faults = _load(results, graph)
    faults += _records(store, graph, manifests)
    faults += _stale(graph, manifests)
    faults += _bytes(results, store, graph, manifests, Stamps(store).examine)
    return sorted(faults, key=lambda fault: list(graph).index(fault.stage))


def outdated(
    results: Path,
    store: Store,
    graph: Mapping[str, Stage],
    toolchain: Toolchain,
    names: Iterable[str],
) -> list[Fault]:
    """Results of the stages named that this recipe and this tree would not make.

    For a workflow engine that does not know how these results were made, since somebody ran the
    stage alone, or lost the engine's own notes. Inputs are left out: ``check_results`` compares
    them.
    """
    manifests, _ = _load(results, graph)
    chosen = {name: manifests[name] for name in names if name in manifests}
    return list(_differs(store, graph, chosen, toolchain))


def withdraw(results: Path, faults: list[Fault]) -> tuple[str, ...]:
    """Remove the manifests of stages with faults, so that they run again; their names."""
    names = tuple(dict.fromkeys(fault.stage for fault in faults))
    for name in names:
        (results / name / NAME).unlink(missing_ok=True)
    return names


def audit(
    results: Path,
    store: Store,
    graph: Mapping[str, Stage],
    toolchain: Toolchain,
    examine: Examine = examine_files,
) -> list[Fault]:
    """All faults of a run: rehashes every file of store and views, follows every input.

    Nothing is written, moved or removed.

    Args:
        results, store, graph: as for ``check_results``.
        toolchain: of the current tree, to compare with what the manifests say.
        examine: reads files; the bad ones with what was found.
    """
    manifests, faults = _load(results, graph)
    faults += _missing_and_extra(results, graph)
    faults += _records(store, graph, manifests, whole=True)
    faults += _stale(graph, manifests)
    faults += _bytes(results, store, graph, manifests, examine)
    faults += _ledgers(store, graph, manifests)
    faults += _unexpected_files(results, manifests)
    faults += _differs(store, graph, manifests, toolchain)
    order = {name: index for index, name in enumerate(graph)}
    return sorted(faults, key=lambda fault: order.get(fault.stage, len(order)))


def _own_manifest(results: Path, stage: Stage) -> Manifest:
    path = results / stage.name / NAME
    manifest = read_manifest(path)
    for what, expected, found in (
        ("stage", stage.name, manifest.stage),
        ("kind", stage.kind, manifest.kind),
    ):
        if expected != found:
            raise VerificationError(f"{path}: {what}: expected {expected}, found {found}")
    return manifest


def _load(results: Path, graph: Mapping[str, Stage]) -> tuple[dict[str, Manifest], list[Fault]]:
    manifests, faults = {}, []
    for name, stage in graph.items():
        if not (results / name / NAME).is_file():
            continue
        try:
            manifests[name] = _own_manifest(results, stage)
        except VerificationError as error:
            faults.append(
                Fault(name, MANIFEST, NAME, "a sound manifest", str(error), dependants(graph, name))
            )
    return manifests, faults


def _records(
    store: Store, graph: Mapping[str, Stage], manifests: Mapping[str, Manifest], whole: bool = False
) -> Iterator[Fault]:
    """A manifest altered with its content recomputed still differs from its record.

    ``whole``: a damaged record, which counts as none for a run, is a fault too and stays.
    """
    for name, manifest in manifests.items():
        key = identity_key(manifest.identity)
        try:
            record = _record(store, key) if whole else store.action(key)
        except VerificationError as error:
            yield Fault(name, RECORD, f"actions/{key}", "a sound record", str(error))
            continue
        if record is not None and record.to_bytes() != manifest.to_bytes():
            expected, found = f"content {record.content} as recorded", f"content {manifest.content}"
            if record.content == manifest.content:
                expected, found = "the roots of its ledgers as recorded", "others"
            yield Fault(name, MANIFEST, NAME, expected, found, dependants(graph, name))


def _record(store: Store, key: str) -> Manifest | None:
    path = store.root / "actions" / key
    if state_of(path) is None:
        return None
    if path.is_symlink() or not path.is_file():
        raise VerificationError(f"{path}: something that is not a plain file")
    record = read_manifest(path)
    if identity_key(record.identity) != key:
        raise VerificationError(f"{path}: holds another identity than its name says")
    return record


def _stale(graph: Mapping[str, Stage], manifests: Mapping[str, Manifest]) -> Iterator[Fault]:
    for name, manifest in manifests.items():
        used = manifest.identity["inputs"]
        for role in sorted({*used, *graph[name].inputs}):
            source = graph[name].inputs.get(role)
            if source is not None and source not in manifests:
                continue
            expected = manifests[source].content if source is not None else "no such input"
            found = used.get(role, "no such input")
            if expected != found:
                yield Fault(
                    name, STALE, f"input {role}", expected, found, dependants(graph, name)
                )  # fmt: skip


def _bytes(
    results: Path,
    store: Store,
    graph: Mapping[str, Stage],
    manifests: Mapping[str, Manifest],
    examine: Examine,
) -> Iterator[Fault]:
    """Faults of objects, then of view files that are not links to a sound object."""
    entries = {entry for manifest in manifests.values() for entry in manifest.files.values()}
    objects = {entry: store.object_path(entry.sha256) for entry in entries}
    bad = examine({path: entry for entry, path in objects.items()})
    for entry in sorted(entries, key=lambda item: (item.sha256, item.size)):
        found = bad.get(objects[entry])
        if found is not None:
            first, *others = holders(manifests, entry)
            readers = {owner.stage for owner in others} | set(dependants(graph, first.stage))
            readers.discard(first.stage)
            ordered = tuple(name for name in graph if name in readers)
            yield Fault(first.stage, BYTES, first.path, describe(entry), found, ordered)
    views: dict[Path, tuple[str, str, Entry]] = {}
    for name, manifest in manifests.items():
        for path, entry in manifest.files.items():
            view = results / name / path
            if not _same_inode(view, objects[entry]):
                views[view] = (name, path, entry)
    for view, found in examine({view: entry for view, (_, _, entry) in views.items()}).items():
        name, path, entry = views[view]
        yield Fault(name, VIEW, path, describe(entry), found)


def _ledgers(
    store: Store, graph: Mapping[str, Stage], manifests: Mapping[str, Manifest]
) -> Iterator[Fault]:
    """Merkle roots that are not those of the lines, where the lines themselves are sound."""
    # imported here: a workflow engine that starts does not pay for the hash library
    from instella.merkle import file_root

    for name, manifest in manifests.items():
        for path, root in sorted(manifest.ledgers.items()):
            entry = manifest.files[path]
            if store.examine(entry) is not None:
                continue
            found = file_root(store.object_path(entry.sha256))
            if found != root:
                expected = f"Merkle root {found} from its lines"
                yield Fault(name, LEDGER, path, expected, root, dependants(graph, name))


def _same_inode(view: Path, stored: Path) -> bool:
    left, right = state_of(view), state_of(stored)
    if left is None or right is None:
        return False
    return (left.st_dev, left.st_ino) == (right.st_dev, right.st_ino)


def _missing_and_extra(results: Path, graph: Mapping[str, Stage]) -> Iterator[Fault]:
    for name in graph:
        if not (results / name / NAME).is_file():
            yield Fault(name, MISSING, NAME, "a manifest", "nothing", dependants(graph, name))
    for path in sorted(results.glob(f"*/{NAME}")):
        if path.parent.name not in graph:
            yield Fault(path.parent.name, EXTRA, NAME, "no such stage in the recipe", "a manifest")


def _unexpected_files(results: Path, manifests: Mapping[str, Manifest]) -> Iterator[Fault]:
    for name, manifest in manifests.items():
        folder = results / name
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder).as_posix()
            if path.is_dir() and not path.is_symlink():
                continue
            if relative != NAME and relative not in manifest.files:
                yield Fault(name, VIEW, relative, "no such file in the artifact", "a file")


def _differs(
    store: Store,
    graph: Mapping[str, Stage],
    manifests: Mapping[str, Manifest],
    toolchain: Toolchain,
) -> Iterator[Fault]:
    for name, manifest in manifests.items():
        expected = origin_of(graph[name])
        if manifest.origin != expected:
            yield Fault(name, DIFFERS, "origin", expected, manifest.origin)
            continue
        for item in differences(manifest, graph[name], toolchain, store):
            yield Fault(name, DIFFERS, item.field, item.now, item.then)
