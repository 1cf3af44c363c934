"""Writes resumable checkpoints: of a whole network at once, of a sharded one beside the steps.

Where the network is sharded each rank of the first replica writes a file with the tensors it
owns. It copies them, and a thread writes the copy while training goes on. The thread of rank 0
waits for a note of each other rank, with its file's SHA-256, and then makes the folder a
checkpoint by renaming it (``checkpoint.py``). So a kill at any time leaves the checkpoint before
or this one. Ranks share the folder; nothing is sent over the network.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from torch import Tensor

from instella import canonical
from instella.training import checkpoint
from instella.training.layout import Layout
from instella.training.sharding import Sharded

LOOK_SECONDS = 0.02

Lines = list[dict[str, Any]]


class State(Protocol):
    """What is saved of a trainer."""

    step: int
    layout: Layout

    def tensors(self) -> dict[str, Tensor]:
        """Weights and moments, or this rank's part of them."""


class Saver:
    """Saves while it is used as a context manager; left by an error, it ends what it began.

    Args:
        folder: where checkpoints lie, one for all ranks.
        state: of the trainer.
        stay: how many checkpoints stay.
    """

    def __init__(self, folder: Path, state: State, stay: int) -> None:
        self._folder = folder
        self._state = state
        self._stay = stay
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def save(self, lines: Lines, ledger: list[bytes]) -> None:
        """Save the state as it is; called in every rank at the same step.

        Raises:
            OSError: this checkpoint, or the one before, cannot be written.
        """
        layout, step = self._state.layout, self._state.step
        if not isinstance(layout, Sharded):
            if layout.rank == 0:
                tensors = self._state.tensors()
                weights, moments = checkpoint.weights_of(tensors), checkpoint.moments_of(tensors)
                checkpoint.save(self._folder, step, weights, moments, lines, ledger, self._stay)
            return
        self.finish()
        name = checkpoint.begin(self._folder, step).name if layout.rank == 0 else ""
        draft = self._folder / layout.group.share(name)
        if layout.replicas.rank:
            return
        owned = layout.owned(self._state.tensors())
        tensors = {name: item.to("cpu") for name, item in owned.items()}
        logs = (list(lines), list(ledger))
        self._begin(lambda: self._write(draft, step, layout, tensors, logs))

    def check(self) -> None:
        """Raise what went wrong in the thread."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Wait until the last checkpoint is whole; called in every rank."""
        layout = self._state.layout
        if isinstance(layout, Sharded):
            if layout.rank:
                self._wait()
            layout.group.barrier()  # every part is written, or a rank is gone
            self._wait()

    def _begin(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception as error:  # raised by ``check`` in the thread that trains
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def _write(
        self,
        draft: Path,
        step: int,
        layout: Sharded,
        tensors: dict[str, Tensor],
        logs: tuple[Lines, list[bytes]],
    ) -> None:
        own, count = layout.shards.rank, layout.shards.ranks
        names = [checkpoint.part_name(number, count) for number in range(count)]
        canonical.write_safetensors(draft / names[own], tensors)
        digest = canonical.sha256_file(draft / names[own])
        if own:
            unfinished = draft / f"{names[own]}.unfinished"
            canonical.write_json(unfinished, digest)
            unfinished.rename(_note(draft, names[own]))
            return
        checkpoint.write_logs(draft, *logs)
        files = {name: canonical.sha256_file(draft / name) for name in checkpoint.LOGS}
        files[names[0]] = digest
        for name in names[1:]:
            while not _note(draft, name).is_file():
                if self._ended.wait(LOOK_SECONDS):
                    return
            files[name] = str(canonical.read_json(_note(draft, name)))
            _note(draft, name).unlink()
        checkpoint.commit(draft, step, files, self._stay)


def _note(draft: Path, name: str) -> Path:
    return draft / f"{name}.written"
