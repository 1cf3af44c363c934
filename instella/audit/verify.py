"""The whole audit of a run folder, except for what is computed again.

``instella.artifacts.check.audit`` compares bytes, manifests, records, inputs, ledgers and
identities. Here stands what else a run claims: journal, lock, licences, the summaries
beside the stages, and that nothing leads out of the folders that were given.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from instella.artifacts.check import EXTRA, Fault, audit, root
from instella.artifacts.identity import PACKAGE_FOLDER, Toolchain, lock_file
from instella.artifacts.lineage import dependants, sound_manifests
from instella.artifacts.manifest import NAME, Manifest
from instella.artifacts.places import BESIDE, ROOT, STATEMENTS, TABLE
from instella.artifacts.store import Store
from instella.audit.journals import journal_faults
from instella.audit.rehash import Rehash
from instella.audit.tree import tree_notes
from instella.errors import Incomplete, VerificationError
from instella.recipe.graph import Stage
from instella.wheels import BYTES_LOCK, read_bytes_lock

LINK, LOCK, LICENCE, SUMMARY = "link", "lock", "licence", "summary"
PROJECT = "(project)"
RUN = "(run)"


@dataclass(frozen=True)
class Findings:
    """What an audit found without computing anything again.

    Attributes:
        faults: in the graph's order; those of the whole run last.
        notes: what a reader should know and is no fault of an artifact.
        root: of the run; None while stages are missing or damaged.
        licences: source to licence, as the recipe states it.
        files, size: how many files and bytes were read.
    """

    faults: list[Fault]
    notes: list[str]
    root: str | None
    licences: dict[str, str] = field(default_factory=dict)
    files: int = 0
    size: int = 0


def verify(
    results: Path,
    store: Store,
    graph: Mapping[str, Stage],
    toolchain: Toolchain,
    jobs: int | None = None,
    project: Path = PACKAGE_FOLDER.parent,
) -> Findings:
    """Everything that reading alone can tell; nothing is written.

    Args:
        results: folder of one recipe's results.
        store: where the bytes lie.
        graph: the recipe's graph.
        toolchain: of the tree that claims to have made them.
        jobs: threads that hash.
        project: the tree's folder, for lock and version control.
    """
    rehash = Rehash(jobs)
    faults = audit(results, store, graph, toolchain, rehash)
    manifests = sound_manifests(results, graph)
    faults += _links(results, store, graph, manifests)
    faults += journal_faults(results, graph, manifests)
    faults += _licences(graph)
    faults += _lock(project, graph)
    faults += _summaries(results, graph)
    faults += _strangers(results, graph, faults)
    order = {name: index for index, name in enumerate(graph)}
    faults.sort(key=lambda fault: order.get(fault.stage, len(order)))
    return Findings(
        faults=faults,
        notes=tree_notes(project),
        root=_root(results, graph),
        licences=_stated(graph),
        files=rehash.files,
        size=rehash.size,
    )


def _root(results: Path, graph: Mapping[str, Stage]) -> str | None:
    try:
        return root(results, graph)
    except (Incomplete, VerificationError):
        return None


def _links(
    results: Path, store: Store, graph: Mapping[str, Stage], manifests: Mapping[str, Manifest]
) -> Iterator[Fault]:
    """Folders and manifests that are links: what they lead to is not the run's own."""
    inside: list[tuple[str, Path]] = [
        (stage, store.root / "sha256") for stage in list(manifests)[:1]
    ]
    for name, manifest in manifests.items():
        inside += [(name, results / name), (name, results / name / NAME)]
        for file in manifest.files:
            inside += [(name, results / name / parent) for parent in Path(file).parents]
        inside += [
            (name, store.object_path(entry.sha256).parent) for entry in manifest.files.values()
        ]
    seen: set[Path] = set()
    for stage, path in inside:
        if path not in seen and path.is_symlink():
            bases = (results / stage, results, store.root)
            base = next(base for base in bases if path != base and path.is_relative_to(base))
            yield Fault(
                stage,
                LINK,
                path.relative_to(base).as_posix(),
                "the run's own file or folder",
                "a symbolic link",
                dependants(graph, stage),
            )
        seen.add(path)


def _stated(graph: Mapping[str, Stage]) -> dict[str, str]:
    sources = {name: stage for name, stage in graph.items() if stage.kind == "source"}
    return {name: stage.settings["source"].licence for name, stage in sources.items()}


def _licences(graph: Mapping[str, Stage]) -> Iterator[Fault]:
    for name, text in _stated(graph).items():
        if not text.strip():
            expected = "a licence as stated by the publisher"
            yield Fault(name, LICENCE, "sources", expected, "nothing", dependants(graph, name))


def _lock(project: Path, graph: Mapping[str, Stage]) -> Iterator[Fault]:
    """The wheels that are meant have to be those of the lock."""
    try:
        read_bytes_lock(lock_file(project / PACKAGE_FOLDER.name))
    except VerificationError as error:
        yield Fault(
            PROJECT, LOCK, BYTES_LOCK, "the wheels of run.lock", str(error), tuple(graph)
        )  # fmt: skip


def _summaries(results: Path, graph: Mapping[str, Stage]) -> Iterator[Fault]:
    """``root`` and ``table.md`` beside the stages say what the stages say, if they are there."""
    expected: dict[str, bytes] = {}
    found = _root(results, graph)
    if found is not None:
        expected[ROOT] = f"{found}\n".encode("ascii")
    table = results / "results" / TABLE
    if table.is_file():
        expected[TABLE] = table.read_bytes()
    for name, data in expected.items():
        path = results / name
        if path.is_symlink() or (path.exists() and not path.is_file()):
            yield Fault(RUN, SUMMARY, name, "a plain file", "something else")
        elif path.is_file() and path.read_bytes() != data:
            told = found if name == ROOT else "the table of stage results"
            yield Fault(RUN, SUMMARY, name, str(told), "another one")


def _strangers(results: Path, graph: Mapping[str, Stage], known: list[Fault]) -> Iterator[Fault]:
    """Folders beside the stages that look like a stage's and have no manifest."""
    named = {fault.stage for fault in known if fault.kind == EXTRA}
    usual = {*graph, *named, *BESIDE, STATEMENTS}
    if not results.is_dir():
        return
    for path in sorted(results.iterdir()):
        if path.name not in usual and path.is_dir() and not path.name.startswith("."):
            yield Fault(RUN, EXTRA, path.name, "no such stage in the recipe", "a folder")


def as_json(fault: Fault) -> dict[str, Any]:
    """A fault as plain values."""
    return {
        "stage": fault.stage,
        "kind": fault.kind,
        "file": fault.file,
        "expected": fault.expected,
        "found": fault.found,
        "dependants": list(fault.dependants),
    }
