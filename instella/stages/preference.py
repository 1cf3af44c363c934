"""Direct preference optimization against the starting network as frozen reference."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from instella import canonical
from instella.artifacts.job import Job
from instella.errors import VerificationError
from instella.recipe import settings
from instella.training.checkpoint import load_tensors
from instella.training.folders import publish, start_moments, start_network
from instella.training.loop import Batch, train
from instella.training.objectives import masked_logprobs, preference_loss
from instella.training.order import Cursor
from instella.training.precision import as_computed
from instella.training.processes import launch
from instella.training.projection import needed_columns, network_logprobs
from instella.training.reduction import Group, ordered_sum
from instella.training.rows import ChatRows, micro_batches

REFERENCE = "reference"


def run(job: Job) -> None:
    """Train on the pairs of ``tokens/{chosen,rejected}_{input_ids,label_mask}.npy``."""
    launch(job.ranks, _run, job)


def _run(group: Group, job: Job) -> None:
    chosen: settings.Preference = job.settings["preference"]
    start = job.inputs["init"]
    rows = 2 * chosen.training.micro_batch
    network = start_network(start, job.numerics, chosen.data.sequence_length, rows, chosen.training)
    pairs = Pairs(job.inputs["tokens"], chosen, network.settings.vocab_size)
    training = chosen.training
    cursor = Cursor(
        pairs.count, training.global_batch, training.seed, training.epochs, training.max_steps
    )
    reference = as_computed(network, training.precision)
    pairs.reference = reference_logprobs(job, group, reference, pairs, cursor.taken())
    del reference
    moments = start_moments(start, training)
    trained = train(job, group, network, training, pairs, moments)
    if group.rank == 0:
        publish(job, trained, network, training, start)


class Pairs:
    """Rows of better and worse answers to one question.

    Args:
        folder: of the token files.
        chosen: micro-batch, beta and normalization.
        vocab_size: ids the network knows.

    Attributes:
        count: pairs.
        micro_batch: pairs of one forward pass.
        reference: float32 [pairs, 2], log-probabilities of chosen and rejected under
            the frozen network, of all pairs that an update takes.
    """

    def __init__(self, folder: Path, chosen: settings.Preference, vocab_size: int) -> None:
        self._chosen_rows = ChatRows(folder, "chosen_")
        self._rejected_rows = ChatRows(folder, "rejected_")
        self._settings = chosen
        self._vocab_size = vocab_size
        self.count = len(self._chosen_rows.ids)
        self.micro_batch = chosen.training.micro_batch
        self.reference = torch.zeros(0, 2)
        if self._rejected_rows.ids.shape != self._chosen_rows.ids.shape:
            raise VerificationError(
                f"{self._rejected_rows.path}: shape {self._rejected_rows.ids.shape}, but the "
                f"chosen rows have {self._chosen_rows.ids.shape}"
            )

    def batch(self, examples: np.ndarray) -> Batch:
        """Tokens and labels of both answers count."""
        labels = sum(int(side.labels[examples].sum()) for side in self._sides())
        parts = micro_batches(examples, self.micro_batch)
        return Batch(parts, 2 * len(examples) * self._chosen_rows.ids.shape[1], labels)

    def _sides(self) -> tuple[ChatRows, ChatRows]:
        return self._chosen_rows, self._rejected_rows

    def logprobs(self, network: Any, pairs: np.ndarray) -> tuple[Tensor, Tensor]:
        """Log-probabilities, float32 [pairs], of the chosen and of the rejected answers."""
        columns = needed_columns(*(side.mask[pairs] for side in self._sides()))
        taken = [side.take(pairs, columns, self._vocab_size) for side in self._sides()]
        ids, mask = (torch.cat(both) for both in zip(*taken, strict=True))
        logprobs = network_logprobs(network, ids, self._settings.training.logits_at_once)
        rows = masked_logprobs(logprobs, mask, self._settings.normalized)
        return rows[: len(pairs)], rows[len(pairs) :]

    def loss(self, network: Any, pairs: np.ndarray) -> tuple[Tensor, dict[str, float]]:
        """Mean over the pairs of the global batch; also accuracy and margin of rewards."""
        beta, divisor = self._settings.beta, self._settings.training.global_batch
        chosen, rejected = self.logprobs(network, pairs)
        old_chosen, old_rejected = self.reference[pairs.astype(np.int64)].unbind(1)
        losses = preference_loss(chosen, rejected, old_chosen, old_rejected, beta)
        margin = beta * ((chosen - old_chosen) - (rejected - old_rejected)).detach()
        figures = {"loss": losses, "accuracy": (margin > 0).float(), "margin": margin}
        sums = {name: ordered_sum(values) / divisor for name, values in figures.items()}
        return losses.sum() / divisor, sums


def reference_logprobs(
    job: Job, group: Group, network: Any, pairs: Pairs, taken: np.ndarray
) -> Tensor:
    """Log-probabilities of pairs under the starting network, float32 [pairs, 2].

    Those of ``taken``, and of what shares a micro-batch with them, since the rows of one
    decide each other's padding and with it last bits; the others are zero. Computed
    before the first update, in micro-batches that do not depend on the number of processes,
    and kept in the job's scratch under the hash of its bytes.
    """
    kept = _kept_reference(job.scratch) if group.rank == 0 else None
    name = group.share(kept.name if kept else "none")
    if name != "none":
        return load_tensors(job.scratch / name)[REFERENCE]
    job.report.say(f"log-probabilities of {len(taken)} pairs under the starting network")
    table = torch.zeros(pairs.count, 2)
    size = pairs.micro_batch
    blocks = np.unique(taken // size)
    for block in np.array_split(blocks, group.ranks)[group.rank]:
        rows = np.arange(block * size, min((block + 1) * size, pairs.count))
        with torch.no_grad():
            table[rows] = torch.stack(pairs.logprobs(network, rows), dim=1)
    group.add_roots_([table], group.ranks)  # every row is zero on all ranks but one
    if group.rank == 0:
        _keep_reference(job.scratch, table)
    return table


def _kept_reference(scratch: Path) -> Path | None:
    for path in sorted(scratch.glob(f"{REFERENCE}-*.safetensors")):
        if path.stem == f"{REFERENCE}-{canonical.sha256_file(path)}":
            return path
    return None


def _keep_reference(scratch: Path, table: Tensor) -> None:
    draft = scratch / f"{REFERENCE}.unfinished"
    canonical.write_safetensors(draft, {REFERENCE: table})
    draft.rename(scratch / f"{REFERENCE}-{canonical.sha256_file(draft)}.safetensors")
