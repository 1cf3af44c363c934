"""A small language-model task that each process can build by itself."""

import gc
import hashlib
import io
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from instella import canonical
from instella.artifacts.job import Job
from instella.progress import Reporter
from instella.recipe.settings import Optimizer, Schedule, Training
from instella.training.loop import Batch, Trained, train
from instella.training.objectives import summed_loss
from instella.training.projection import network_logprobs
from instella.training.reduction import Group, ordered_sum
from instella.training.rows import micro_batches

NUMERICS = "portable-x86"
VOCABULARY = 48


class SmallNetwork(nn.Module):
    """As much of a language model as training asks for; quick to run."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.lm_head = nn.Linear(16, VOCABULARY, bias=False)
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            parameter.data = torch.rand(parameter.shape, generator=generator) - 0.5

    def hidden(self, ids: Tensor, mask: None = None) -> Tensor:
        states = self.embed(ids)
        for layer in self.layers:
            states = states + nn.functional.silu(layer(states))
        return states


def small_training(**changes: Any) -> Training:
    values: dict[str, Any] = {
        "global_batch": 8,
        "micro_batch": 2,
        "optimizer": Optimizer(learning_rate=0.01),
        "schedule": Schedule("cosine", warmup_steps=3, final_fraction=0.1),
        "seed": 6198,
        "epochs": 2,
        "save_every": 5,
        "ledger_every": 4,
    }
    return Training(**{**values, **changes})


class Sequences:
    """53 random rows: six full batches of 8 an epoch, twelve steps in two."""

    count = 53

    def __init__(self, micro_batch: int = 2) -> None:
        self.rows = np.random.default_rng(1).integers(0, VOCABULARY, (self.count, 12))
        self._micro_batch = micro_batch

    def batch(self, examples: np.ndarray) -> Batch:
        parts = micro_batches(examples, self._micro_batch)
        return Batch(parts, len(examples) * 12, len(examples) * 11)

    def loss(self, network: Any, rows: np.ndarray) -> tuple[Tensor, dict[str, float]]:
        logprobs = network_logprobs(network, torch.from_numpy(self.rows[rows]))
        return summed_loss(logprobs) / 96, {"loss": -ordered_sum(logprobs) / 96}


def small_job(folder: Path, report: Reporter | None = None) -> Job:
    for name in ("output", "scratch"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return Job(
        stage="small",
        settings={},
        inputs={},
        output=folder / "output",
        scratch=folder / "scratch",
        downloads=folder,
        recipe_folder=folder,
        numerics=NUMERICS,
        ranks=1,
        report=report or Reporter("small", stream=io.StringIO()),
    )


def run_small(group: Group, job: Job, training: Training) -> str:
    """Train and give one digest of weights, moments, step lines and ledger."""
    network = SmallNetwork()
    trained = train(job, group, network, training, Sequences(training.micro_batch))
    return digest(network, trained)


def digest(network: nn.Module, trained: Trained) -> str:
    found = hashlib.sha256(b"".join(map(canonical.json_bytes, trained.lines)))
    if trained.trainer.group.rank == 0:
        assert len(trained.ledger.lines) == len(trained.lines)
        found.update(b"".join(trained.ledger.lines))
    state = trained.trainer.optimizer.export_state()
    for name, tensor in sorted({**network.state_dict(), **state}.items()):
        found.update(name.encode() + tensor.detach().numpy().tobytes())
    return found.hexdigest()


def forked(function: Callable[..., object], *arguments: object) -> Any:
    """Start a function in a copy of this process, a ``multiprocessing.Process``.

    The copy never frees what it inherits: torch's servers have threads, which no copy has, and
    freeing one of them there aborts.
    """

    def run() -> None:
        gc.freeze()
        function(*arguments)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    return process
