"""A run's checkpoints and the data behind them, as ``instella data trace`` tells it."""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from instella.artifacts.identity import settings_json
from instella.artifacts.lineage import dependants
from instella.artifacts.manifest import Entry, Manifest, read_manifest
from instella.canonical import sha256_file
from instella.commands.common import Project
from instella.data.adapters import texts
from instella.data.packing import Drawn, documents_of, split_options
from instella.data.shown import SHOWN
from instella.data.trace import LEDGER, Located, Training, read_ledger, steps_of
from instella.errors import BadUse, Incomplete, VerificationError
from instella.recipe.graph import Stage
from instella.recipe.imports import ancestors
from instella.recipe.settings import Part
from instella.training.order import Cursor

TRAINING_KINDS = ("pretrain", "finetune", "preference", "policy")
CHECKPOINT_KINDS = (*TRAINING_KINDS, "merge")
LEDGER_KINDS = ("tokenizer", "tokens_text", "tokens_chat", "tokens_preference", "tokens_prompts")
ROWS = {"finetune": "input_ids.npy", "preference": "chosen_input_ids.npy"}


class Run:
    """The artifacts of a run, which are asked for only while they fit the recipe."""

    def __init__(self, project: Project) -> None:
        self.graph = project.graph
        self._project = project
        self._manifests: dict[str, Manifest] = {}
        self._verified: set[str] = set()

    def folder(self, stage: str) -> Path:
        """Files of a stage's artifact."""
        return self._project.workspace.results / stage

    def manifest(self, name: str) -> Manifest:
        """The manifest of a stage, made by the recipe's settings from the inputs that are there.

        Raises:
            Incomplete: the stage has not run, or not since settings or inputs changed.
        """
        if name not in self._manifests:
            path = self._project.workspace.manifest(name)
            if not path.is_file():
                raise Incomplete(f"{name}: has no result yet; run the recipe to its end")
            self._manifests[name] = read_manifest(path)
        return self._manifests[name]

    def checked(self, name: str) -> Manifest:
        """As ``manifest``, and no setting or input has changed since.

        Raises:
            Incomplete: the stage has not run, or not since.
        """
        manifest, stage = self.manifest(name), self.graph[name]
        if manifest.origin == "imported":
            return manifest
        contents = {role: self.manifest(other).content for role, other in stage.inputs.items()}
        for what, now in (("settings", settings_json(stage)), ("inputs", contents)):
            if manifest.identity[what] != now:
                raise Incomplete(
                    f"{name}: was made with other {what} than the run has; run the recipe to its "
                    "end"
                )
        return manifest

    def ledger(self, name: str) -> Path:
        """Folder of a stage with a ledger, whose bytes are those of its manifest.

        Raises:
            VerificationError: they are not.
        """
        manifest = self.checked(name)
        path = self.folder(name) / LEDGER
        if LEDGER not in manifest.files:
            raise VerificationError(f"{path}: {name} has no ledger; run the stage again")
        _require_bytes(path, manifest.files[LEDGER])
        return path.parent

    def verified(self, name: str) -> None:
        """Compare every file of a stage's folder with its manifest, once.

        Raises:
            VerificationError: one differs or is missing.
        """
        if name in self._verified:
            return
        for file, entry in self.checked(name).files.items():
            _require_bytes(self.folder(name) / file, entry)
        self._verified.add(name)

    def training(self, name: str) -> Training:
        """The data of a training stage."""
        self.checked(name)
        stage = self.graph[name]
        chosen, tokens = stage.settings[stage.kind], self.ledger(stage.inputs["tokens"])
        batch, window = chosen.training.global_batch, None
        if stage.kind == "pretrain":
            window = chosen.data.sequence_length
            count = _length(tokens / "tokens.npy") // window
        elif stage.kind == "policy":
            batch = chosen.prompts_per_step
            count = sum(1 for _ in read_ledger(tokens))
        else:
            count = _length(tokens / ROWS[stage.kind])
        training = chosen.training
        order = Cursor(count, batch, training.seed, training.epochs, training.max_steps)
        return Training(tokens, order, window)

    def lineage(self, name: str) -> list[str]:
        """The checkpoints that ``name`` came from, and itself, in the graph's order.

        Raises:
            BadUse: the stage makes no checkpoint.
        """
        if self.graph[name].kind not in CHECKPOINT_KINDS:
            names = ", ".join(n for n, s in self.graph.items() if s.kind in CHECKPOINT_KINDS)
            raise BadUse(f"{name}: makes no checkpoint; name one of {names}")
        found = {name} | ancestors(self.graph, name)
        return [n for n in self.graph if n in found and self.graph[n].kind in CHECKPOINT_KINDS]


def _require_bytes(path: Path, entry: Entry) -> None:
    if not path.is_file() or sha256_file(path) != entry.sha256:
        raise VerificationError(f"{path}: not the bytes of its manifest; see instella audit")


def _length(path: Path) -> int:
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise VerificationError(f"{path}: not a readable .npy file: {error}") from None
    return len(array)


@dataclass(frozen=True)
class Place:
    """Documents in one ledger, and the updates of the trainings that read it."""

    ledger: str
    documents: list[Located]
    trainings: Mapping[str, list[Located]]


def places(run: Run, wanted: str, is_hash: bool) -> Iterator[Place]:
    """Where documents are that have a hash, or hold a text.

    Args:
        run: all of its ledgers and trainings must be there.
        wanted: SHA-256 of a ledger's entry; or a text, which is looked for in the
            documents of the sources, read again, and in what was made of them for the model.
        is_hash: which of the two.
    """
    for name, stage in run.graph.items():
        if stage.kind not in LEDGER_KINDS:
            continue
        folder = run.ledger(name)
        keys = set() if is_hash else _keys(run, stage, wanted)
        entries = [
            entry
            for entry in read_ledger(folder)
            if (entry["sha256"] == wanted if is_hash else (entry["source"], entry["key"]) in keys)
        ]
        if not entries:
            continue
        readers = [
            other
            for other, reader in run.graph.items()
            if reader.kind in TRAINING_KINDS and reader.inputs.get("tokens") == name
        ]
        trainings = {other: steps_of(run.training(other), entries) for other in readers}
        yield Place(name, [Located(entry) for entry in entries], trainings)


def _keys(run: Run, stage: Stage, wanted: str) -> set[tuple[str, str]]:
    """Source and key of the documents of a stage's parts that hold a text, or show it."""
    data = stage.settings["tokenizer" if stage.kind == "tokenizer" else "data"]
    parts: tuple[Part, ...] = data.parts
    inputs = {role: run.folder(name) for role, name in stage.inputs.items()}
    for part in parts:
        run.verified(stage.inputs[f"source_{part.source}"])
    shown, suffix = SHOWN[stage.kind], stage.settings["prompt_suffix"]
    normal = unicodedata.normalize("NFC", wanted)
    return {
        (item.source, item.document.key)
        for item in _drawn(parts, inputs, stage.kind == "tokens_prompts")
        if any(wanted in text for text in texts(item.document))
        or any(normal in unicodedata.normalize("NFC", text) for text in shown(item, suffix))
    }


def _drawn(
    parts: tuple[Part, ...], inputs: Mapping[str, Path], math_prompt: bool
) -> Iterator[Drawn]:
    for number, part in enumerate(parts):
        bare, is_math = split_options(part, math_prompt)
        for document in documents_of(bare, inputs):
            yield Drawn(number, part.source, document, is_math)


@dataclass(frozen=True)
class Consequences:
    """What follows from some documents.

    Attributes:
        checkpoints: those that saw them, by themselves or through what they came from.
        rerun: stages to run again when the documents go.
    """

    checkpoints: tuple[str, ...]
    rerun: tuple[str, ...]


def consequences(run: Run, found: list[Place]) -> Consequences:
    """Follow the documents through the graph."""
    saw = {
        name
        for place in found
        for name, documents in place.trainings.items()
        if any(item.steps for item in documents)
    }
    touched = saw.union(*(dependants(run.graph, name) for name in saw))
    ledgers = {place.ledger for place in found}
    rerun = ledgers.union(*(dependants(run.graph, name) for name in ledgers))
    return Consequences(
        tuple(n for n, s in run.graph.items() if n in touched and s.kind in CHECKPOINT_KINDS),
        tuple(name for name in run.graph if name in rerun),
    )
