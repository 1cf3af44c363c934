"""A run that somebody hands over for comparison: a folder, and nothing else is believed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from instella.artifacts.identity import lock_hash
from instella.artifacts.journal import FOLDER as JOURNAL
from instella.artifacts.manifest import NAME, Manifest, read_manifest
from instella.artifacts.store import Store, examine_file
from instella.audit.journals import Line, read_lines
from instella.canonical import json_bytes, sha256_bytes
from instella.errors import BadUse, Incomplete, VerificationError
from instella.wheels import locked_hashes

LOCK = Path("requirements", "run.lock")


@dataclass(frozen=True)
class Run:
    """One of two runs.

    Attributes:
        label: ``A`` or ``B``.
        results: folder with a folder for each stage.
        store: where code records may lie; None if no store is near.
        manifests: by stage, in an order in which they can run.
        project: a copy of the project around it, for its lock; None if there is none.
    """

    label: str
    results: Path
    store: Path | None
    manifests: Mapping[str, Manifest]
    project: Path | None

    @cached_property
    def root(self) -> str:
        """Root over the stages that are there."""
        contents = {name: manifest.content for name, manifest in self.manifests.items()}
        return sha256_bytes(json_bytes(contents))

    def file(self, stage: str, path: str) -> Path:
        """A file of a stage's artifact, compared with its manifest first.

        Raises:
            VerificationError: its bytes are not those of the manifest.
        """
        entry = self.manifests[stage].files[path]
        view = self.results / stage / path
        found = examine_file(view, entry)
        if found is not None:
            raise VerificationError(
                f"{self.label}: {stage}: {path}: expected sha256 {entry.sha256}, found {found}; "
                "audit that run first"
            )
        return view

    def maker(self, content: str) -> str | None:
        """The first stage whose artifact has this content."""
        names = (name for name, item in self.manifests.items() if item.content == content)
        return next(names, None)

    def closure(self, code: str) -> dict[str, str] | None:
        """Module to hash of its code, of a code hash that the store remembers."""
        return None if self.store is None else Store(self.store).code_modules(code)

    def packages(self, lock: str) -> dict[str, str] | None:
        """Package to version of a lock, if the project's own has that hash."""
        path = self.project / LOCK if self.project is not None else None
        if path is None or not path.is_file() or lock_hash(path) != lock:
            return None
        return {name: version for name, (version, _) in locked_hashes(path).items()}

    def journal(self, stage: str) -> Line | None:
        """The newest journal line of the stage's artifact that tells of a computation, or any."""
        try:
            lines, _ = read_lines(self.results / JOURNAL / f"{stage}.jsonl")
        except VerificationError:
            return None
        content = self.manifests[stage].content
        own = [line for line in lines if line["content"] == content]
        computed = [line for line in own if line["outcome"] == "computed"]
        found = computed or own
        return found[-1] if found else None


def open_run(label: str, folder: Path, recipe: str | None, store: Path | None) -> Run:
    """The run in a folder.

    Args:
        label: ``A`` or ``B``.
        folder: a results folder (``results/<recipe>``), or a project with one.
        recipe: name of the recipe, where a project has results of several.
        store: store folder; without it the one beside the results, if there is one.

    Raises:
        BadUse: there is no such folder, or it holds results of several recipes.
        Incomplete: no stage has a result.
        VerificationError: a damaged manifest.
    """
    results = _results(label, folder, recipe)
    project = next((p for p in (results.parent.parent, folder) if (p / LOCK).is_file()), None)
    near = results.parent.parent / "store"
    chosen = store or (near if near.is_dir() else None)
    manifests = {path.parent.name: read_manifest(path) for path in _manifest_files(results)}
    for name, manifest in manifests.items():
        if manifest.stage != name:
            raise VerificationError(f"{results / name}: holds the manifest of {manifest.stage}")
    if not manifests:
        raise Incomplete(f"{label}: {results}: no stage has a result")
    return Run(label, results, chosen, _ordered(manifests), project)


def _results(label: str, folder: Path, recipe: str | None) -> Path:
    if not folder.is_dir():
        raise BadUse(f"{label}: {folder}: no such folder; give a run's folder or its results")
    if any(True for _ in _manifest_files(folder)):
        return folder
    base = folder / "results" if (folder / "results").is_dir() else folder
    found = sorted(path for path in base.iterdir() if path.is_dir() and _has_results(path))
    if recipe is not None:
        found = [path for path in found if path.name == recipe]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise BadUse(
            f"{label}: {folder}: results of one recipe are needed, found {names}; give the folder "
            "of one, as results/tiny"
        )
    return found[0]


def _has_results(folder: Path) -> bool:
    return any(True for _ in _manifest_files(folder))


def _manifest_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob(f"[!.]*/{NAME}")):
        if path.is_file():
            yield path


def _ordered(manifests: Mapping[str, Manifest]) -> dict[str, Manifest]:
    """Stages behind those whose content they name; names decide where nothing else does.

    The order comes from the manifests alone: nobody says which recipe made an untrusted run.
    """
    makers: dict[str, list[str]] = {}
    for name, manifest in manifests.items():
        makers.setdefault(manifest.content, []).append(name)
    waiting = {
        name: {source for content in _inputs(item).values() for source in makers.get(content, [])}
        - {name}
        for name, item in manifests.items()
    }
    order: list[str] = []
    while waiting:
        # a forged manifest may name inputs in a circle; it is cut at the first name
        ready = sorted(name for name, needs in waiting.items() if not needs & waiting.keys())
        chosen = ready or [min(waiting)]
        order += chosen
        for name in chosen:
            del waiting[name]
    return {name: manifests[name] for name in order}


def _inputs(manifest: Manifest) -> dict[str, str]:
    inputs: dict[str, str] = dict(manifest.identity["inputs"])
    return inputs


def input_of(run: Run, stage: str, role: str) -> Any:
    """Content of an input, or None."""
    return _inputs(run.manifests[stage]).get(role)
