"""How much each training stage does: steps, tokens, generated tokens, operations."""

from collections.abc import Mapping
from dataclasses import dataclass

from instella.plan.flops import forward_flops, training_flops
from instella.plan.memory import MASK_BYTES, TOKEN_BYTES
from instella.recipe.settings import (
    Finetune,
    Model,
    Policy,
    Preference,
    Pretrain,
    Recipe,
    Training,
)


@dataclass(frozen=True)
class Work:
    """One training stage; None where the number of rows is not known.

    Attributes:
        stage: name.
        runs: trainings of this stage, one a seed.
        steps: updates of one run; rollout steps for GRPO.
        tokens: positions that one run trains on, padding included.
        generated: tokens that one run samples at most.
        training_flops: operations of one run without sampling.
        rollout_flops: operations of one run's sampling.
        data_bytes: token arrays that are read.
        micro_tokens: positions of one forward pass.
    """

    stage: str
    runs: int
    steps: int | None
    tokens: float | None
    generated: float
    training_flops: float | None
    rollout_flops: float
    data_bytes: float | None
    micro_tokens: int


def work_of(
    recipe: Recipe, stage: str, rows: Mapping[str, float], answer_share: float = 1.0
) -> Work:
    """The work of one stage.

    Args:
        recipe: settings.
        stage: one of ``recipe.stages``.
        rows: stage -> rows, pairs or prompts of its data, where known.
        answer_share: mean length of a sampled answer as a share of the longest.
    """
    settings = getattr(recipe.stages, stage)
    if isinstance(settings, Pretrain):
        return _pretrain(recipe.model, stage, settings)
    if isinstance(settings, Policy):
        return _policy(recipe.model, stage, settings, rows.get(stage), answer_share)
    return _rows(recipe.model, stage, settings, rows.get(stage))


def updates(training: Training, rows: float, batch: int) -> int:
    """Full batches of all epochs, at most ``max_steps``; a partial batch is dropped."""
    steps = int(rows // batch) * training.epochs
    return steps if training.max_steps is None else min(steps, training.max_steps)


def _pretrain(model: Model, stage: str, settings: Pretrain) -> Work:
    length, training = settings.data.sequence_length, settings.training
    windows = None if settings.data.max_tokens is None else settings.data.max_tokens // length
    steps = training.max_steps
    if windows is not None:
        steps = updates(training, windows, training.global_batch)
    tokens = None if steps is None else float(steps * training.global_batch * length)
    return Work(
        stage=stage,
        runs=max(1, len(settings.seeds)),
        steps=steps,
        tokens=tokens,
        generated=0.0,
        training_flops=None if tokens is None else tokens * training_flops(model, length),
        rollout_flops=0.0,
        data_bytes=None if windows is None else float(windows * length * TOKEN_BYTES),
        micro_tokens=training.micro_batch * length,
    )


def _rows(model: Model, stage: str, settings: Finetune | Preference, rows: float | None) -> Work:
    """Rows of one length; a pair is two rows, and a reference network reads it once more."""
    length, training = settings.data.sequence_length, settings.training
    pair = 2 if isinstance(settings, Preference) else 1
    steps, tokens, flops, size = training.max_steps, None, None, None
    if rows is not None:
        steps = updates(training, rows, training.global_batch)
        size = rows * pair * length * (TOKEN_BYTES + MASK_BYTES)
    if steps is not None:
        tokens = float(steps * training.global_batch * pair * length)
        each = training_flops(model, length)
        if isinstance(settings, Preference):
            each += forward_flops(model, length)
        flops = tokens * each
    return Work(
        stage=stage,
        runs=1,
        steps=steps,
        tokens=tokens,
        generated=0.0,
        training_flops=flops,
        rollout_flops=0.0,
        data_bytes=size,
        micro_tokens=training.micro_batch * pair * length,
    )


def _policy(
    model: Model, stage: str, settings: Policy, rows: float | None, answer_share: float
) -> Work:
    """Each response is sampled, read by the policy and by its reference, and trained on.

    Two forward passes before the update, as verl makes them, and three times a forward
    in it. Prompts count with their longest length: an upper bound.
    """
    training = settings.training
    steps = training.max_steps
    if rows is not None:
        steps = updates(training, rows, settings.prompts_per_step)
    answer = settings.max_response_tokens * answer_share
    length = int(settings.data.max_prompt_tokens + answer)
    responses = float((steps or 0) * settings.prompts_per_step * settings.samples_per_prompt)
    tokens = None if steps is None else responses * length
    each = training_flops(model, length) + 2 * forward_flops(model, length)
    longest = settings.data.max_prompt_tokens + settings.max_response_tokens
    size = None if rows is None else rows * settings.data.max_prompt_tokens * TOKEN_BYTES
    return Work(
        stage=stage,
        runs=1,
        steps=steps,
        tokens=tokens,
        generated=responses * answer,
        training_flops=None if tokens is None else tokens * each,
        rollout_flops=responses * length * forward_flops(model, length),
        data_bytes=size,
        micro_tokens=training.micro_batch * longest,
    )
