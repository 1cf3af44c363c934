"""Resumable checkpoints: whole or absent, and verified before use.

A checkpoint is written into a folder of another name, flushed to the disk and renamed,
so ``step-NNNNNNNN`` appears only when it is complete. It holds ``model.safetensors``,
``optimizer.safetensors``, ``steps.jsonl`` and ``state.json``, which holds the SHA-256
of the others and of itself. Nothing is pickled.
"""

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from instella import canonical
from instella.errors import VerificationError

KEEP = 2
MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STEPS = "steps.jsonl"
STATE = "state.json"
FILES = (MODEL, OPTIMIZER, STEPS)

_NAME = re.compile(r"step-(\d{8,})")
_UNFINISHED = "unfinished-"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on disk after ``step`` updates; ``extra`` is the caller's."""

    folder: Path
    step: int
    extra: dict[str, Any]

    def model(self) -> dict[str, Tensor]:
        """Weights by name."""
        return load_tensors(self.folder / MODEL)

    def optimizer(self) -> dict[str, Tensor]:
        """Moments by name."""
        return load_tensors(self.folder / OPTIMIZER)

    def lines(self) -> list[dict[str, Any]]:
        """The step lines written so far."""
        return canonical.read_jsonl(self.folder / STEPS)


def save(
    folder: Path,
    step: int,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    lines: list[dict[str, Any]],
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Write the checkpoint of ``step`` and drop all but the newest two.

    Args:
        folder: where checkpoints lie; made if missing.
        step: updates done.
        model, optimizer: tensors by name.
        lines: step lines so far.
        extra: further values that JSON can hold.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(folder)
    name = _name(step)
    draft = folder / f"{_UNFINISHED}{name}"
    draft.mkdir()
    canonical.write_safetensors(draft / MODEL, model)
    canonical.write_safetensors(draft / OPTIMIZER, optimizer)
    canonical.write_bytes(draft / STEPS, b"".join(map(canonical.json_bytes, lines)))
    state = {
        "step": step,
        "extra": dict(extra or {}),
        "files": {file: canonical.sha256_file(draft / file) for file in FILES},
    }
    digest = canonical.sha256_bytes(canonical.json_bytes(state))
    canonical.write_json(draft / STATE, {"state": state, "sha256": digest})
    canonical.flush(draft)
    target = folder / name
    if target.exists():
        shutil.rmtree(target)
    draft.rename(target)
    canonical.flush(folder)
    _prune(folder, step)
    return target


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
        for file in FILES:
            if canonical.sha256_file(path / file) != state["files"][file]:
                raise VerificationError(f"{path / file}: altered: its SHA-256 differs")
        if path.name != _name(state["step"]):
            raise VerificationError(f"{path}: renamed: it holds step {state['step']}")
        return Checkpoint(path, state["step"], state["extra"])
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


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _steps(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    names = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    return [int(name[1]) for name in names if name]


def _prune(folder: Path, step: int) -> None:
    # a checkpoint beyond the step just written was damaged, or this one would follow it
    older = sorted((known for known in _steps(folder) if known <= step), reverse=True)
    for known in set(_steps(folder)) - set(older[:KEEP]):
        shutil.rmtree(folder / _name(known))


def _remove_unfinished(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name.startswith(_UNFINISHED):
            shutil.rmtree(path)
