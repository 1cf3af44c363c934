"""Resumable checkpoints: whole or absent, and verified before use.

A checkpoint is written into a folder of another name, flushed to the disk and renamed,
so ``step-NNNNNNNN`` appears only when it is complete. It holds ``model.safetensors`` and
``optimizer.safetensors``, or ``part-I-of-N.safetensors`` with whole tensors of both where the
ranks of a sharded network write them (``saving.py``), ``steps.jsonl``, ``steps.ledger.jsonl``
and ``state.json``, which holds the SHA-256 of the others and of itself. Either is read by any
number of ranks. Nothing is pickled.

The two logs are written whole each time, so that a checkpoint needs no other file. A step
takes about 0.7 kB in them: after the million steps of the published pretraining 0.7 GB,
beside 37 GB of weights and moments.
"""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from instella import canonical
from instella.errors import VerificationError
from instella.recipe.settings import RECIPES_CHECKPOINTS
from instella.step_files import LEDGER, STEPS

MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
LOGS = (STEPS, LEDGER)
FILES = (MODEL, OPTIMIZER, *LOGS)
PARAMETER = "parameter"

Rows = Callable[[str], slice | None]

_NAME = re.compile(r"step-([0-9]{8}|[1-9][0-9]{8,})")
_UNFINISHED = "unfinished-"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on disk after ``step`` updates.

    Attributes:
        folder: with its files.
        step: updates done.
        tensor_files: those with weights and moments.
        digest: SHA-256 of its state, which holds that of each file.
    """

    folder: Path
    step: int
    tensor_files: tuple[str, ...]
    digest: str

    def tensors(self, rows: Rows) -> dict[str, Tensor]:
        """Weights ``parameter.NAME`` and moments by name.

        Args:
            rows: which rows of a tensor are read; None for all.

        Raises:
            VerificationError: a file is not safetensors, or a name stands in two.
        """
        found: dict[str, Tensor] = {}
        for file in self.tensor_files:
            prefix = f"{PARAMETER}." if file == MODEL else ""
            with _opened(self.folder / file) as tensors:
                for name in tensors.keys():  # noqa: SIM118 - not a mapping
                    full = prefix + name
                    if full in found:
                        raise VerificationError(f"{self.folder}: {full} stands in two files")
                    wanted = rows(full)
                    found[full] = (
                        tensors.get_tensor(name)
                        if wanted is None
                        else tensors.get_slice(name)[wanted]
                    )
        return found

    def model(self) -> dict[str, Tensor]:
        """Weights by name, whole."""
        return weights_of(self.tensors(lambda _: None))

    def lines(self) -> list[dict[str, Any]]:
        """The step lines written so far."""
        return canonical.read_jsonl(self.folder / STEPS)

    def ledger(self) -> list[bytes]:
        """The ledger's lines so far, each with its line feed."""
        return (self.folder / LEDGER).read_bytes().splitlines(keepends=True)


def save(
    folder: Path,
    step: int,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    lines: list[dict[str, Any]],
    ledger: list[bytes],
    stay: int = RECIPES_CHECKPOINTS.keep,
) -> Path:
    """Write the checkpoint of ``step`` and drop all but the newest.

    Args:
        folder: where checkpoints lie; made if missing.
        step: updates done.
        model, optimizer: tensors by name.
        lines: step lines so far.
        ledger: lines of the step ledger so far, as bytes.
        stay: how many stay, this one included.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(folder)
    draft = folder / f"{_UNFINISHED}{_name(step)}"
    draft.mkdir()
    canonical.write_safetensors(draft / MODEL, model)
    canonical.write_safetensors(draft / OPTIMIZER, optimizer)
    write_logs(draft, lines, ledger)
    return commit(draft, step, {file: canonical.sha256_file(draft / file) for file in FILES}, stay)


def begin(folder: Path, step: int) -> Path:
    """An empty folder in which several processes write a checkpoint; others of its kind go.

    Its name is new each time, so that what an earlier attempt still writes is not taken for a
    part of this one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(folder)
    return Path(tempfile.mkdtemp(prefix=f"{_UNFINISHED}{_name(step)}-", dir=folder))


def write_logs(draft: Path, lines: list[dict[str, Any]], ledger: list[bytes]) -> None:
    """The step lines and the lines of the step ledger."""
    canonical.write_bytes(draft / STEPS, b"".join(map(canonical.json_bytes, lines)))
    canonical.write_bytes(draft / LEDGER, b"".join(ledger))


def commit(
    draft: Path, step: int, files: Mapping[str, str], stay: int = RECIPES_CHECKPOINTS.keep
) -> Path:
    """Make a checkpoint of a folder in which all its files are written.

    Args:
        draft: in the folder of the checkpoints.
        step: updates done.
        files: SHA-256 of each file.
        stay: how many checkpoints stay, this one included; others go once it is whole.
    """
    state = {"step": step, "files": dict(files)}
    digest = canonical.sha256_bytes(canonical.json_bytes(state))
    canonical.write_json(draft / STATE, {"state": state, "sha256": digest})
    canonical.flush(draft)
    target = draft.with_name(_name(step))
    _remove(target)
    draft.rename(target)
    canonical.flush(target.parent)
    _prune(target.parent, step, stay)
    return target


def keep(
    folder: Path, step: int, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]
) -> None:
    """Write weights and moments of ``step`` for the artifact; none is dropped.

    Args:
        folder: where the kept ones lie; made if missing.
        step: of the step ledger, which vouches for the tensors.
        model, optimizer: tensors by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(folder)
    draft = folder / f"{_UNFINISHED}{_name(step)}"
    draft.mkdir()
    canonical.write_safetensors(draft / MODEL, model)
    canonical.write_safetensors(draft / OPTIMIZER, optimizer)
    canonical.flush(draft)
    target = folder / _name(step)
    _remove(target)
    draft.rename(target)
    canonical.flush(folder)


def latest(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint whose bytes are what was written, or None.

    Args:
        folder: where checkpoints lie; may be missing.
        say: told in one line about each checkpoint that is passed over.
    """
    for step in sorted(_steps(folder), reverse=True):
        path = folder / _name(step)
        try:
            return verify(path)
        except VerificationError as error:
            say(f"checkpoint passed over: {error}")
    return None


def verify(path: Path) -> Checkpoint:
    """The checkpoint in ``path`` after comparing every byte's hash.

    Raises:
        VerificationError: a file is missing or altered.
    """
    try:
        whole = canonical.read_json(path / STATE)
        state, digest = whole["state"], whole["sha256"]
        if digest != canonical.sha256_bytes(canonical.json_bytes(state)):
            raise VerificationError(f"{path / STATE}: altered: its own SHA-256 differs")
        tensor_files = _tensor_files(path, set(state["files"]))
        for file in (*tensor_files, *LOGS):
            if canonical.sha256_file(path / file) != state["files"][file]:
                raise VerificationError(f"{path / file}: altered: its SHA-256 differs")
        if path.name != _name(state["step"]):
            raise VerificationError(f"{path}: renamed: it holds step {state['step']}")
        return Checkpoint(path, state["step"], tensor_files, digest)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise VerificationError(f"{path}: not a whole checkpoint: {error!r}") from None


def load_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, on the CPU.

    Raises:
        VerificationError: the file is missing or not safetensors.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise VerificationError(f"{path}: not a readable safetensors file: {error}") from None


def part_name(number: int, count: int) -> str:
    """File of the tensors that one of ``count`` ranks writes."""
    return f"part-{number:05d}-of-{count:05d}.safetensors"


def weights_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters among the tensors of a trainer, by their own names."""
    start = f"{PARAMETER}."
    return {
        name.removeprefix(start): item for name, item in tensors.items() if name.startswith(start)
    }


def moments_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The others."""
    return {name: item for name, item in tensors.items() if not name.startswith(f"{PARAMETER}.")}


def _tensor_files(path: Path, files: set[str]) -> tuple[str, ...]:
    """The files with tensors: the two of one writer, or the parts of several."""
    found = files - set(LOGS)
    parts = tuple(part_name(number, len(found)) for number in range(len(found)))
    for wanted in ((MODEL, OPTIMIZER), parts):
        if found == set(wanted):
            return wanted
    raise VerificationError(f"{path / STATE}: names other files than those of a checkpoint")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise VerificationError(f"{path}: not a readable safetensors file: {error}") from None


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _steps(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    names = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    return [int(name[1]) for name in names if name]


def _prune(folder: Path, step: int, stay: int) -> None:
    # a checkpoint beyond the step just written was damaged, or this one would follow it
    older = sorted((known for known in _steps(folder) if known <= step), reverse=True)
    for known in set(_steps(folder)) - set(older[:stay]):
        _remove(folder / _name(known))


def _remove_unfinished(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name.startswith(_UNFINISHED):
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        if not path.name.startswith(_UNFINISHED):
            # a kill in between must not leave half of what looks like a checkpoint
            path = path.rename(path.with_name(f"{_UNFINISHED}old-{path.name}"))
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
