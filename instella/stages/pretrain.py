"""Next-token training on windows of a packed stream, from scratch or from a stage."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from instella.artifacts.job import Job
from instella.data.tokenizer import load
from instella.network.attention import Documents
from instella.network.device import device_of
from instella.network.init import initialize
from instella.network.known_answer import check_network
from instella.network.network import Instella
from instella.recipe import settings
from instella.training.folders import publish, start_moments, start_network
from instella.training.loop import Batch, train
from instella.training.objectives import next_token_normalizer, summed_loss
from instella.training.processes import launch
from instella.training.projection import network_logprobs
from instella.training.reduction import Group, ordered_sum
from instella.training.rows import as_ids, micro_batches, open_tokens


def run(job: Job) -> None:
    """Train on ``tokens/tokens.npy``; the tail shorter than a window is not seen."""
    launch(job.ranks, _run, job)


def _run(group: Group, job: Job) -> None:
    chosen: settings.Pretrain = job.settings["pretrain"]
    start = job.inputs.get("init")
    network = _start(job, start, chosen)
    path = job.inputs["tokens"] / "tokens.npy"
    eos_id = load(job.inputs["tokenizer"]).eos_id if chosen.document_mask else None
    windows = Windows(path, chosen, network.settings.vocab_size, eos_id)
    moments = start_moments(start, chosen.training)
    trained = train(job, group, network, chosen.training, windows, moments)
    if group.rank == 0:
        publish(job, trained, network, chosen.training, job.inputs["tokenizer"])


def _start(job: Job, start: Path | None, chosen: settings.Pretrain) -> Instella:
    length, training = chosen.data.sequence_length, chosen.training
    if start is not None:
        return start_network(start, job.numerics, length, training.micro_batch, training)
    model: settings.Model = job.settings["model"]
    model = replace(model, rope_theta=training.rope_theta or model.rope_theta)
    network = Instella(model, job.numerics)
    check_network(network, training.micro_batch * length)
    initialize(network, chosen.init_seed)
    network.attend_by(training.attention)
    return network.to(device_of(job.numerics))


class Windows:
    """Windows of ``sequence_length`` tokens, one after another in the stream.

    Args:
        path: uint16 tokens, one dimension.
        chosen: window length, micro-batch and divisor.
        vocab_size: ids the network knows.
        eos_id: ends a document, within which its tokens attend; None: within the window.
    """

    def __init__(
        self, path: Path, chosen: settings.Pretrain, vocab_size: int, eos_id: int | None = None
    ) -> None:
        length = chosen.data.sequence_length
        tokens = open_tokens(path, 1)
        self.count = len(tokens) // length
        self._windows = tokens[: self.count * length].reshape(self.count, length)
        self._path = path
        self._vocab_size = vocab_size
        self._eos_id = eos_id
        self._micro_batch = chosen.training.micro_batch
        self._at_once = chosen.training.logits_at_once
        self._divisor = next_token_normalizer(
            chosen.training.global_batch, length, chosen.normalizer
        )

    def batch(self, examples: np.ndarray) -> Batch:
        """Micro-batches are arrays of window numbers."""
        rows, length = len(examples), self._windows.shape[1]
        parts = micro_batches(examples, self._micro_batch)
        return Batch(parts, rows * length, rows * (length - 1))

    def loss(self, network: Any, windows: np.ndarray) -> tuple[Tensor, dict[str, float]]:
        """Cross-entropy of every token but a window's first, over the fixed divisor."""
        ids = as_ids(self._windows[windows], self._vocab_size, self._path)
        documents = None if self._eos_id is None else Documents(ids, self._eos_id)
        logprobs = network_logprobs(network, ids, self._at_once, documents)
        loss = -ordered_sum(logprobs) / self._divisor
        return summed_loss(logprobs) / self._divisor, {"loss": loss}
