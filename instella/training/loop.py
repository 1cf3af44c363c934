"""One update, and the loop of updates that a kill cannot tear.

What an update computes is a function of the weights, the moments and the step number:
not of the number of processes, nor of how often the run was resumed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
from torch import Tensor, nn

from instella import stopping
from instella.artifacts.job import Job
from instella.errors import BadUse, KitError, Stopped, VerificationError
from instella.recipe import settings
from instella.training import checkpoint
from instella.training.account import Account
from instella.training.agreement import check_agreement, starting_facts
from instella.training.compiling import compile_layers
from instella.training.generators import seed_generators
from instella.training.layout import Layout, Whole
from instella.training.ledger import Ledger, Streams, cursor_digest, numbers_digest, rng_digest
from instella.training.optimizer import AdamW, clip
from instella.training.order import Cursor
from instella.training.projection import recompute_activations
from instella.training.reduction import ALONE, Group, Tree, require_power_of_two
from instella.training.saving import Saver
from instella.training.schedule import learning_rate
from instella.training.sharding import lay_out

Micro = TypeVar("Micro")
LossFunction = Callable[[Any, Micro], tuple[Tensor, dict[str, float]]]
Line = dict[str, Any]

CHECKPOINTS = "checkpoints"
KEPT = "kept"
COMPILED = "compiled"


class Diverged(KitError):
    """A loss or gradient that is not a number or infinite."""


@dataclass(frozen=True)
class Figures:
    """What one update tells.

    Attributes:
        step: updates done, this one included.
        learning_rate: used for it.
        grad_norm: total norm before clipping.
        sums: additive figures of the loss, summed over the global batch.
    """

    step: int
    learning_rate: float
    grad_norm: float
    sums: dict[str, float]


class Trainer:
    """Applies updates to a network.

    Args:
        network: trained in place.
        optimizer: AdamW settings.
        schedule: learning rate over ``total_updates``.
        total_updates: updates of the whole run.
        group: processes that share the work.
        layout: what of the network each of them holds; None for the whole.

    Attributes:
        step: updates done in this run; decides the learning rate.
        optimizer: moments, and the updates they have seen.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: settings.Optimizer,
        schedule: settings.Schedule,
        total_updates: int,
        group: Group = ALONE,
        layout: Layout | None = None,
    ) -> None:
        self.network = network
        self.group = group
        self.layout = layout or Whole(network, group)
        self.step = 0
        self._chosen = optimizer
        self._schedule = schedule
        self._total = total_updates
        self._parameters = [part.tensor for part in self.layout.parts]
        self.optimizer = AdamW(network, optimizer, self.layout.parts)

    def update(self, micro_batches: Sequence[Micro], loss: LossFunction[Micro]) -> Figures:
        """One optimizer step over a global batch.

        Args:
            micro_batches: all of the global batch, on every rank; a power of two. Each
                rank runs its own of them.
            loss: ``loss(network, micro_batch)`` gives the micro-batch's term of the
                global loss, to call backward on, and additive figures: the same names
                for every micro-batch.

        Raises:
            BadUse: the number of micro-batches is not a power of two.
            Diverged: the loss or a gradient is not finite; the weights are unchanged.
        """
        count = len(micro_batches)
        require_power_of_two(count, "the number of micro-batches (global_batch / micro_batch)")
        tree = Tree()
        leaves = self.layout.leaves(count)
        for index in leaves:
            value, figures = loss(self.network, micro_batches[index])
            value.backward()
            tree.push(self.layout.leaf(figures))
        whole = self.layout.combine(tree.root() if leaves else None, count)
        for parameter, gradient in zip(self._parameters, whole.gradients, strict=True):
            parameter.grad = gradient
        return self._apply(whole.figures)

    def tensors(self) -> dict[str, Tensor]:
        """Parameters as ``parameter.NAME``, and what ``AdamW.export_state`` gives.

        Where the network is sharded, what this rank holds of them.
        """
        weights = {f"{checkpoint.PARAMETER}.{part.name}": part.tensor for part in self.layout.parts}
        return {**weights, **self.optimizer.export_state()}

    def gathered(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights and moments, whole, on rank 0; called in every rank."""
        tensors = self.layout.gathered(self.tensors())
        return checkpoint.weights_of(tensors), checkpoint.moments_of(tensors)

    def restore(self, found: checkpoint.Checkpoint) -> None:
        """Continue from a checkpoint, of any number of ranks.

        Raises:
            VerificationError: its tensors are not those of the network.
        """
        tensors = found.tensors(self.layout.rows)
        weights = checkpoint.weights_of(tensors)
        for part in self.layout.parts:
            given = weights.pop(part.name, None)
            if given is None or given.shape != part.tensor.shape:
                raise VerificationError(f"{found.folder}: holds no {part.name} of this network")
            part.tensor.data.copy_(given)
        if weights:
            raise VerificationError(f"{found.folder}: the network has no {min(weights)}")
        self.layout.refresh()
        self.optimizer.restore_state(checkpoint.moments_of(tensors), found.folder)
        self.layout.note(found.digest)
        self.step = found.step

    def restore_moments(self, tensors: dict[str, Tensor], where: Path) -> None:
        """As ``AdamW.restore_state``, from whole tensors."""
        self.optimizer.restore_state(self.layout.cut(tensors, str(where)), where)

    def _apply(self, sums: dict[str, float]) -> Figures:
        norm = clip(self._parameters, self._chosen.max_grad_norm, self.layout.squares)
        for name, value in {**sums, "grad_norm": norm}.items():
            if not math.isfinite(value):
                raise Diverged(
                    f"step {self.step + 1}: {name} is {value}: look at the steps before it, "
                    "lower the learning rate or check the data"
                )
        rate = learning_rate(self._schedule, self._chosen.learning_rate, self.step, self._total)
        self.optimizer.update(rate)
        self.layout.refresh()
        for parameter in self._parameters:
            parameter.grad = None
        self.step += 1
        return Figures(self.step, rate, norm, sums)


@dataclass(frozen=True)
class Batch:
    """A global batch cut in micro-batches; ``labels`` counts the terms of its loss."""

    micro_batches: Sequence[Any]
    tokens: int
    labels: int


class Task(Protocol):
    """What is learned: examples by number, and their loss."""

    @property
    def count(self) -> int:
        """Examples of one epoch."""

    def batch(self, examples: np.ndarray) -> Batch:
        """The global batch of these examples, with its divisors known."""

    def loss(self, network: Any, micro_batch: Any) -> tuple[Tensor, dict[str, float]]:
        """As ``Trainer.update`` wants it; the figures hold ``loss``."""


@dataclass(frozen=True)
class Trained:
    """The end of a run.

    Attributes:
        trainer: with this rank's part of weights and moments.
        lines: one a step.
        ledger: the step ledger.
        weights, moments: whole, in rank 0; empty in the others.
    """

    trainer: Trainer
    lines: list[Line]
    ledger: Ledger
    weights: dict[str, Tensor]
    moments: dict[str, Tensor]


def train(
    job: Job,
    group: Group,
    network: nn.Module,
    training: settings.Training,
    task: Task,
    moments: tuple[dict[str, Tensor], Path] | None = None,
) -> Trained:
    """Run all updates of a stage, from its newest whole checkpoint if there is one.

    Args:
        job: scratch for checkpoints, progress.
        group: processes that share the work.
        network: float32, with the starting weights; trained in place, and left in the
            precision of the training.
        training: batch, order, optimizer, schedule.
        task: examples and loss.
        moments: tensors of ``AdamW.export_state`` to start from, and the file they stand in.
    """
    if training.global_batch % training.micro_batch:
        raise BadUse(
            f"global_batch {training.global_batch} is no multiple of micro_batch "
            f"{training.micro_batch}: their ratio must be a power of two"
        )
    cursor = Cursor(
        task.count, training.global_batch, training.seed, training.epochs, training.max_steps
    )
    if training.activation_checkpointing:
        recompute_activations(network)
    total = cursor.total_steps
    if training.compile:
        compile_layers(network, job.scratch / COMPILED)
    layout = lay_out(network, group, job.sharding, training.precision)
    trainer = Trainer(network, training.optimizer, training.schedule, total, group, layout)
    if moments is not None:
        trainer.restore_moments(*moments)
    ledger = Ledger(training.ledger_every, total, group.rank == 0, layout.digest_together)
    lines = resume(job, trainer, ledger)
    tokens = 0
    account = Account(job.scratch, trainer.step, group.ranks) if group.rank == 0 else None
    with Saver(job.scratch / CHECKPOINTS, trainer, job.checkpoints.keep) as saver:
        while trainer.step < total:
            epoch, examples = cursor.at(trainer.step)
            seed_generators(training.seed, trainer.step)
            batch = task.batch(examples)
            figures = trainer.update(batch.micro_batches, task.loss)
            lines.append(step_line(figures, epoch, batch))
            streams = [cursor.stream(epoch)]
            ledger.add(
                figures.step,
                partial(ledger_fields, epoch, examples, streams, [figures]),
                trainer.tensors,
            )
            keep(job, trainer, training, figures.step)
            stop = figures.step < total and stop_is_wanted(group)
            if figures.step % save_every(job, training) == 0 or figures.step == total or stop:
                saver.save(lines, ledger.lines)
            saver.check()
            if account is not None:
                account.step(figures.step, batch.tokens)
            tokens += batch.tokens
            job.report.step(figures.step, total, tokens=tokens, loss=figures.sums["loss"])
            if stop:
                saver.finish()
                end_here(job, group, figures.step, total)
        saver.finish()
    return Trained(trainer, lines, ledger, *trainer.gathered())


def save_every(job: Job, training: settings.Training) -> int:
    """Steps between resumable checkpoints: of the place where it runs, or else of the recipe."""
    return job.checkpoints.every or training.save_every


def stop_is_wanted(group: Group) -> bool:
    """Whether to keep a checkpoint of this step and end; rank 0 decides, so that all agree."""
    return stopping.may_be_wanted() and group.share(str(stopping.is_wanted())) == "True"


def end_here(job: Job, group: Group, step: int, total: int) -> NoReturn:
    """End every rank once the checkpoint is written.

    Raises:
        Stopped: always.
    """
    group.barrier()
    raise Stopped(f"{job.stage}: asked to stop, kept a checkpoint after step {step} of {total}")


def step_line(figures: Figures, epoch: int, batch: Batch) -> Line:
    """One line of ``steps.jsonl``: step (from 1), epoch (from 0) and every figure."""
    return {
        "step": figures.step,
        "epoch": epoch,
        "learning_rate": figures.learning_rate,
        "grad_norm": figures.grad_norm,
        "tokens": batch.tokens,
        "labels": batch.labels,
        **figures.sums,
    }


def ledger_fields(
    epoch: int, examples: np.ndarray, streams: Streams, updates: Sequence[Figures]
) -> dict[str, str]:
    """What every line of the step ledger holds: digests of cursor, generators and figures."""
    losses = [{**item.sums, "grad_norm": item.grad_norm} for item in updates]
    return {
        "cursor": cursor_digest(epoch, examples),
        "rng": rng_digest(streams),
        "loss": numbers_digest("loss", losses),
        "rate": numbers_digest("rate", [item.learning_rate for item in updates]),
    }


def keep(job: Job, trainer: Trainer, training: settings.Training, step: int) -> None:
    """Keep weights and moments of ``step`` for the artifact, if they are due.

    Before the resumable checkpoint of the same step: a stage killed in between does it again.
    """
    every = training.keep_checkpoints_every
    if every is not None and step % every == 0:
        weights, moments = trainer.gathered()
        if trainer.group.rank == 0:
            checkpoint.keep(job.scratch / KEPT, step, weights, moments)


def save(job: Job, trainer: Trainer, lines: list[Line], ledger: Ledger) -> None:
    """Write a resumable checkpoint into the job's scratch, and wait for it."""
    with Saver(job.scratch / CHECKPOINTS, trainer, job.checkpoints.keep) as saver:
        saver.save(lines, ledger.lines)
        saver.finish()


def resume(job: Job, trainer: Trainer, ledger: Ledger) -> list[Line]:
    """Bring trainer and ledger to the newest whole checkpoint.

    Rank 0 verifies and chooses, so that all ranks start at one step.

    Returns:
        The step lines so far; none at the start.

    Raises:
        VerificationError: the ranks would start with different weights, moments, settings,
            numerics or steps.
    """
    found = _newest(job, trainer)
    lines = []
    if found is not None:
        trainer.restore(found)
        lines = found.lines()
        if trainer.group.rank == 0:
            ledger.lines = found.ledger()
        job.report.say(f"resumed after step {found.step}")
    if trainer.group.ranks > 1:
        digest = trainer.layout.start_digest(trainer.tensors())
        check_agreement(trainer.group, starting_facts(job, trainer.step, digest))
    return lines


def _newest(job: Job, trainer: Trainer) -> checkpoint.Checkpoint | None:
    """The checkpoint that rank 0 chose, verified by each rank."""
    found = None
    if trainer.group.rank == 0:
        found = checkpoint.latest(job.scratch / CHECKPOINTS, job.report.say)
    name = trainer.group.share(found.folder.name if found else "none")
    if name == "none":
        return None
    return found or checkpoint.verify(job.scratch / CHECKPOINTS / name)
