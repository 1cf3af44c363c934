"""Supervised fine-tuning: next-token loss on the labelled tokens of padded rows."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from instella.artifacts.job import Job
from instella.recipe import settings
from instella.training.folders import publish, start_moments, start_network
from instella.training.loop import Batch, train
from instella.training.objectives import summed_loss
from instella.training.processes import launch
from instella.training.projection import needed_columns, network_logprobs
from instella.training.reduction import Group, ordered_sum
from instella.training.rows import ChatRows, micro_batches


def run(job: Job) -> None:
    """Train on ``tokens/input_ids.npy`` and ``tokens/label_mask.npy``."""
    launch(job.ranks, _run, job)


def _run(group: Group, job: Job) -> None:
    chosen: settings.Finetune = job.settings["finetune"]
    start = job.inputs["init"]
    rows = chosen.training.micro_batch
    network = start_network(start, job.numerics, chosen.data.sequence_length, rows, chosen.training)
    answers = Answers(job.inputs["tokens"], chosen, network.settings.vocab_size)
    moments = start_moments(start, chosen.training)
    trained = train(job, group, network, chosen.training, answers, moments)
    if group.rank == 0:
        publish(job, trained, network, chosen.training, start)


class Rows(NamedTuple):
    """A micro-batch: row numbers, and the labels of its whole global batch."""

    rows: np.ndarray
    labels: int


class Answers:
    """Rows whose assistant's tokens are labels.

    Args:
        folder: of the token files.
        chosen: micro-batch and reduction of the loss.
        vocab_size: ids the network knows.
    """

    def __init__(self, folder: Path, chosen: settings.Finetune, vocab_size: int) -> None:
        self._data = ChatRows(folder)
        self._chosen = chosen
        self._vocab_size = vocab_size
        self.count = len(self._data.ids)

    def batch(self, examples: np.ndarray) -> Batch:
        """Padding counts as tokens, as in the published figures."""
        labels = int(self._data.labels[examples].sum())
        parts = micro_batches(examples, self._chosen.training.micro_batch)
        tokens = len(examples) * self._data.ids.shape[1]
        return Batch([Rows(part, labels) for part in parts], tokens, labels)

    def loss(self, network: Any, micro: Rows) -> tuple[Tensor, dict[str, float]]:
        """Mean over the global batch's labels, or a constant times the sum.

        The figure ``loss`` is the mean in both cases.
        """
        columns = needed_columns(self._data.mask[micro.rows])
        ids, mask = self._data.take(micro.rows, columns, self._vocab_size)
        logprobs = network_logprobs(network, ids, self._chosen.training.logits_at_once)
        total = summed_loss(logprobs, mask)
        mean = -ordered_sum(torch.where(mask[:, 1:], logprobs, 0.0)) / micro.labels
        if self._chosen.reduce_loss == "mean":
            return total / micro.labels, {"loss": mean}
        return total * self._chosen.loss_scale, {"loss": mean}
