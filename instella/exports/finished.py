"""A finished run as the exports read it: its manifests, files, and what the journal says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from instella.artifacts.check import root
from instella.artifacts.compare import first_other
from instella.artifacts.identity import identity_key
from instella.artifacts.journal import FOLDER
from instella.artifacts.lineage import sound_manifests
from instella.artifacts.manifest import Manifest
from instella.artifacts.store import Store, describe
from instella.audit.journals import read_lines
from instella.canonical import parse_json
from instella.errors import Incomplete, VerificationError
from instella.recipe.graph import Stage, checkpoints
from instella.recipe.settings import Recipe

_FORM = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Execution:
    """What the journal says of the first execution that gave the result that stands.

    Attributes:
        started, ended: UTC, ISO 8601 to the second.
        seconds: wall time.
        computed: here; otherwise it was taken from the store.
        cpu, cores, ranks: of the machine and the run; None where the journal does not say.
    """

    started: str
    ended: str
    seconds: float
    computed: bool
    cpu: str | None
    cores: int | None
    ranks: int


@dataclass(frozen=True)
class Finished:
    """A finished run.

    Attributes:
        recipe, recipe_file, graph: what was run.
        store: where the bytes lie.
        manifests: of every stage, in the graph's order.
        root: of the run.
        executions: by stage, where the journal has one.
    """

    recipe: Recipe
    recipe_file: Path
    graph: Mapping[str, Stage]
    store: Store
    manifests: Mapping[str, Manifest]
    root: str
    executions: Mapping[str, Execution] = field(default_factory=dict)

    def json(self, stage: str, file: str) -> Any:
        """A JSON file of an artifact, its bytes compared with the manifest.

        Raises:
            VerificationError: the store does not hold the bytes that the manifest names.
        """
        entry = self.manifests[stage].files[file]
        found = self.store.examine(entry)
        if found is not None:
            raise VerificationError(
                f"{stage}: {file}: expected {describe(entry)}, found {found}; ./kit run makes it "
                "again"
            )
        return parse_json(self.store.object_path(entry.sha256).read_bytes(), f"{stage}: {file}")

    def checkpoints(self) -> tuple[str, ...]:
        """Stages of the run that publish a model, in order."""
        return tuple(name for name in checkpoints(self.recipe) if name in self.graph)

    def final(self) -> tuple[str, ...]:
        """Checkpoints that no other checkpoint was made from."""
        names = self.checkpoints()
        used = {source for name in names for source in self.graph[name].inputs.values()}
        return tuple(name for name in names if name not in used)


def read_finished(
    recipe: Recipe, recipe_file: Path, graph: Mapping[str, Stage], results: Path, store: Store
) -> Finished:
    """The finished run in a folder of results.

    Raises:
        Incomplete: stages have no result, or results were made by other settings.
        VerificationError: a damaged manifest.
    """
    found = root(results, graph)
    manifests = sound_manifests(results, graph)
    other = first_other(manifests, graph, recipe.numerics)
    if other is not None:
        raise Incomplete(
            f"{results}: these results belong to another recipe than {recipe_file}: {other}; run "
            "the recipe to its end"
        )
    executions = {}
    for name, manifest in manifests.items():
        execution = _execution(results / FOLDER / f"{name}.jsonl", manifest)
        if execution is not None:
            executions[name] = execution
    return Finished(recipe, recipe_file, graph, store, manifests, found, executions)


def _execution(path: Path, manifest: Manifest) -> Execution | None:
    if not path.is_file():
        return None
    wanted = (identity_key(manifest.identity), manifest.content)
    lines = [line for line in read_lines(path)[0] if (line["identity"], line["content"]) == wanted]
    # The first of each kind: whatever is looked up again later changes nothing.
    line = next((line for line in lines if line["outcome"] == "computed"), next(iter(lines), None))
    if line is None:
        return None
    started = _moment(line["started"], path)
    cpu, cores = line.get("cpu"), line.get("cores")
    return Execution(
        started=started.isoformat(),
        ended=(started + timedelta(seconds=round(line["seconds"]))).isoformat(),
        seconds=float(line["seconds"]),
        computed=line["outcome"] == "computed",
        cpu=cpu if isinstance(cpu, str) and cpu.isprintable() else None,
        cores=cores if type(cores) is int else None,
        ranks=line["ranks"],
    )


def _moment(text: str, path: Path) -> datetime:
    try:
        return datetime.strptime(text, _FORM).replace(tzinfo=UTC)
    except ValueError:
        raise VerificationError(
            f"{path}: {text[:40]!r} is not a time as the kit writes it"
        ) from None
