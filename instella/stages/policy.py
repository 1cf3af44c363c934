"""GRPO: sample answers, grade them, move the policy towards the better ones of each group.

One step samples a group of answers to each of its prompts from the current network,
rewards an answer 1 when its last boxed answer is judged equal to the gold one and 0
otherwise (the format earns nothing, as in the published code), and makes mini-batch
updates against the starting network as frozen reference.
"""

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from instella.artifacts.job import Job
from instella.artifacts.notes import HEALTH, NoteLog
from instella.data.tokenizer import Encoder, load
from instella.errors import BadUse, VerificationError
from instella.network.network import Instella
from instella.recipe import settings
from instella.rewards.extract import last_boxed
from instella.rewards.grade import CORRECT, NO_ANSWER, TIMED_OUT, Grader, refuse_clock
from instella.rollout.episodes import (
    Episodes,
    Prompt,
    Scoring,
    episode_logprobs,
    read_prompts,
    sample_episodes,
    score_share,
    without_sign,
)
from instella.rollout.generate import Parts
from instella.rollout.health import check_health, heard_at, rollout_figures
from instella.training.account import Account
from instella.training.folders import publish, start_moments, start_network
from instella.training.generators import seed_generators
from instella.training.layout import Whole
from instella.training.ledger import Ledger, Streams, numbers_digest, tensors_digest
from instella.training.loop import (
    Figures,
    Line,
    Trained,
    Trainer,
    end_here,
    keep,
    ledger_fields,
    resume,
    save,
    save_every,
    stop_is_wanted,
)
from instella.training.objectives import group_advantages, policy_loss
from instella.training.order import Cursor
from instella.training.precision import DTYPES
from instella.training.processes import launch
from instella.training.projection import needed_columns, network_logprobs, recompute_activations
from instella.training.reduction import Group
from instella.training.rows import micro_batches

PURPOSE = "rollout"
# Of a step's line, in its progress line.
SHOWN = ("reward", "loss", "no_signal", "unfinished", "kl_loss")


def run(job: Job) -> None:
    """Train on the prompts of ``tokens/prompts.jsonl``."""
    launch(job.ranks, _run, job)


def _run(group: Group, job: Job) -> None:
    chosen: settings.Policy = job.settings["policy"]
    training, start = chosen.training, job.inputs["init"]
    length = chosen.data.max_prompt_tokens + chosen.max_response_tokens
    network = start_network(start, job.numerics, length, training.micro_batch, training)
    reference = copy.deepcopy(network).to(DTYPES[training.precision]).requires_grad_(False)
    if training.activation_checkpointing:
        recompute_activations(network)
    prompts = read_prompts(job.inputs["tokens"] / "prompts.jsonl", network.settings.vocab_size)
    steps = Cursor(
        len(prompts), chosen.prompts_per_step, training.seed, training.epochs, training.max_steps
    )
    updates = updates_per_step(chosen)
    layout = Whole(network, group, training.precision)
    total = steps.total_steps * updates
    trainer = Trainer(network, training.optimizer, training.schedule, total, group, layout)
    moments = start_moments(start, training)
    if moments is not None:
        trainer.optimizer.restore_state(*moments)
    ledger = Ledger(training.ledger_every, steps.total_steps, kept=group.rank == 0)
    lines = resume(job, trainer, ledger)
    if trainer.step != len(lines) * updates:
        raise VerificationError(
            f"{job.scratch}: a checkpoint of {trainer.step} updates with {len(lines)} steps is "
            f"not of this stage, which makes {updates} a step: remove the folder"
        )
    if job.sharding.kind != "none":
        job.report.say("answers are sampled from the network, so every rank holds it whole")
    if chosen.test_every is not None:
        job.report.say("test_every is for the production engine; here checkpoints are evaluated")
    with Grader() as grader:
        tokens = 0
        first = group.rank == 0
        log = NoteLog(job.scratch, HEALTH, len(lines)) if first else None
        account = Account(job.scratch, len(lines), group.ranks) if first else None
        actor = Actor(job, group, chosen, trainer, reference, load(start), grader, log)
        while len(lines) < steps.total_steps:
            step = len(lines)
            epoch, numbers = steps.at(step)
            seed_generators(training.seed, step)
            made = actor.step(step, [prompts[number] for number in numbers])
            line = {"step": step + 1, "epoch": epoch, **made.line}
            lines.append(line)
            if log is not None:
                log.write({"step": step + 1, **made.health})
            check_health(lines, chosen.health, job.stage)
            order = steps.stream(epoch)
            ledger.add(step + 1, partial(made.digests, epoch, numbers, order), trainer.tensors)
            keep(job, trainer, training, step + 1)
            last = step + 1 == steps.total_steps
            stop = not last and stop_is_wanted(group)
            if (step + 1) % save_every(job, training) == 0 or last or stop:
                save(job, trainer, lines, ledger)
            tokens += line["tokens"]
            if account is not None:
                account.step(step + 1, line["tokens"])
            shown = {name: line[name] for name in SHOWN} | {"entropy": made.health["entropy"]}
            job.report.step(step + 1, steps.total_steps, tokens=tokens, **shown)
            if stop:
                end_here(job, group, step + 1, steps.total_steps)
    if group.rank == 0:
        trained = Trained(trainer, lines, ledger, *trainer.gathered())
        publish(job, trained, network, training, start)


def updates_per_step(chosen: settings.Policy) -> int:
    """Mini-batches of one step.

    Raises:
        BadUse: the responses of a step are no whole number of mini-batches, or those of
            micro-batches.
    """
    responses = chosen.prompts_per_step * chosen.samples_per_prompt
    batch, micro = chosen.training.global_batch, chosen.training.micro_batch
    if responses % batch or batch % micro:
        raise BadUse(
            f"{responses} responses a step (prompts_per_step x samples_per_prompt) must be a "
            f"multiple of global_batch {batch}, and that of micro_batch {micro}"
        )
    return responses // batch


@dataclass(frozen=True)
class Scores:
    """What one step knows about its rows; R rows, W columns.

    Attributes:
        advantages: float32 [R].
        reference: float32 [R, W - 1], log-probabilities of the starting network; None
            without a KL term.
        scoring: takes those of the network before the step's first update.
    """

    advantages: Tensor
    reference: Tensor | None
    scoring: Scoring


@dataclass(frozen=True)
class Micro:
    """Rows of one forward pass, and the response tokens of their whole mini-batch."""

    rows: np.ndarray
    tokens: int


@dataclass(frozen=True)
class Step:
    """One step: its line without number and epoch, and what the ledger's line is made of.

    ``health`` holds figures that no artifact has.
    """

    line: Line
    health: dict[str, float]
    episodes: Episodes
    rewards: np.ndarray
    streams: Streams
    updates: Sequence[Figures]

    def digests(
        self, epoch: int, prompts: np.ndarray, order: Sequence[str | int]
    ) -> dict[str, str]:
        """Fields of the ledger's line.

        Args:
            epoch, prompts: numbers of the prompts taken.
            order: key of the stream that ordered them.
        """
        sampled = [self.episodes.ids, self.episodes.lengths]
        return {
            **ledger_fields(epoch, prompts, [order, *self.streams], self.updates),
            "rollout": tensors_digest("rollout", sampled),
            "rewards": numbers_digest("rewards", self.rewards.tolist()),
        }


@dataclass(frozen=True)
class Actor:
    """Makes steps: rollout, rewards, updates."""

    job: Job
    group: Group
    chosen: settings.Policy
    trainer: Trainer
    reference: Instella
    encoder: Encoder
    grader: Grader
    log: NoteLog | None

    def step(self, step: int, prompts: Sequence[Prompt]) -> Step:
        """Make step ``step`` (from 0) on its prompts."""
        chosen = self.chosen
        purpose: Parts = [PURPOSE, chosen.training.seed, step]
        network: Any = self.trainer.network
        episodes = sample_episodes(self.group, network, prompts, chosen, self.encoder, purpose)
        graded = self._grade(episodes, prompts, step)
        rewards = np.array(graded["rewards"]).reshape(-1, chosen.samples_per_prompt)
        advantages = group_advantages(rewards, chosen.normalize_by_std).reshape(-1)
        reference, at_once = None, chosen.training.logits_at_once
        if chosen.kl_coefficient > 0:
            parts = micro_batches(np.arange(len(episodes.ids)), chosen.training.micro_batch)
            reference = episode_logprobs(self.group, self.reference, episodes, parts, at_once)
        with heard_at(network.lm_head) as heard:
            scores = Scores(advantages, reference, Scoring(episodes, heard, at_once))
            figures, old, entropy = self._update(episodes, scores)
        line = {**_counts(episodes, rewards, prompts), **graded["counts"], **_means(figures)}
        figured = rollout_figures(episodes.mask, old, episodes.logprobs, entropy, rewards)
        health = {**figured, "timed_out": graded["timed_out"]}
        streams = [[*purpose, prompt.key] for prompt in prompts]
        return Step(line, health, episodes, rewards, streams, figures)

    def _grade(self, episodes: Episodes, prompts: Sequence[Prompt], step: int) -> dict[str, Any]:
        """Rewards [R] and counts of verdicts; judged by rank 0, known to all."""
        found = {}
        if self.group.rank == 0:
            found = self._judge(episodes, prompts, step)
        shared: dict[str, Any] = json.loads(self.group.share(json.dumps(found)))
        return shared

    def _judge(self, episodes: Episodes, prompts: Sequence[Prompt], step: int) -> dict[str, Any]:
        golds = [item.answer for item in prompts for _ in range(self.chosen.samples_per_prompt)]
        answers = [last_boxed(text) for text in episodes.texts(self.encoder)]
        verdicts = self.grader.verdicts(list(zip(golds, answers, strict=True)))
        stopped = sum(verdict.label == TIMED_OUT for verdict in verdicts)
        if stopped and self.log is not None:
            self.log.write({"step": step + 1, "timed_out": stopped})
        refuse_clock(verdicts, f"{self.job.stage}: step {step + 1}")
        counts = {
            "no_answer": sum(verdict.label == NO_ANSWER for verdict in verdicts),
            "refused": sum(verdict.refused for verdict in verdicts),
        }
        return {
            "rewards": [float(verdict.label == CORRECT) for verdict in verdicts],
            "counts": counts,
            "timed_out": stopped,
        }

    def _update(self, episodes: Episodes, scores: Scores) -> tuple[list[Figures], Tensor, Tensor]:
        """All updates of a step; then log-probabilities and entropies before the first.

        The first update scores its own rows, the others' are scored before it.
        """
        training, scoring = self.chosen.training, scores.scoring
        first, *others = micro_batches(np.arange(len(episodes.ids)), training.global_batch)
        later = [part for rows in others for part in micro_batches(rows, training.micro_batch)]
        score_share(self.group, self.trainer.network, scoring, later)
        figures = [self._mini_batch(first, episodes, scores, None)]
        old, entropy = scoring.together(self.group)
        figures += [self._mini_batch(rows, episodes, scores, old) for rows in others]
        return figures, old, entropy

    def _mini_batch(
        self, rows: np.ndarray, episodes: Episodes, scores: Scores, old: Tensor | None
    ) -> Figures:
        """One update; ``old`` is None where its own scores are the old ones."""
        tokens = int(episodes.lengths[rows].sum())
        parts = micro_batches(rows, self.chosen.training.micro_batch)

        def loss(network: Any, part: np.ndarray) -> tuple[Tensor, dict[str, float]]:
            return self._loss(network, Micro(part, tokens), episodes, scores, old)

        return self.trainer.update(parts, loss)

    def _loss(
        self, network: Any, micro: Micro, episodes: Episodes, scores: Scores, old: Tensor | None
    ) -> tuple[Tensor, dict[str, float]]:
        chosen, rows = self.chosen, micro.rows
        columns = needed_columns(episodes.mask[rows].numpy())
        labels = slice(columns - 1)
        if old is None:
            logprobs = scores.scoring.score(network, rows)
            before = without_sign(logprobs.detach())
        else:
            ids = episodes.ids[rows, :columns]
            logprobs = network_logprobs(network, ids, chosen.training.logits_at_once)
            before = old[rows, labels]
        terms = policy_loss(
            logprobs,
            before,
            None if scores.reference is None else scores.reference[rows, labels],
            scores.advantages[rows],
            episodes.mask[rows, 1:columns],
            clip_low=chosen.clip_low,
            clip_high=chosen.clip_high,
            dual_clip=chosen.dual_clip,
            kl_coefficient=chosen.kl_coefficient,
            normalizer=micro.tokens,
        )
        return terms.loss, terms.figures


def _counts(episodes: Episodes, rewards: np.ndarray, prompts: Sequence[Prompt]) -> Line:
    """Figures of a rollout; ``no_signal`` is the share of groups of equal rewards."""
    rows, samples = len(episodes.ids), rewards.shape[1]
    lengths = episodes.lengths.tolist()
    equal = (rewards == rewards[:, :1]).all(axis=1)
    return {
        "reward": int(rewards.sum()) / rows,
        "no_signal": int(equal.sum()) / len(equal),
        "response_tokens": sum(lengths) / rows,
        "unfinished": int((~episodes.finished).sum()) / rows,
        "tokens": sum(lengths) + samples * sum(len(prompt.ids) for prompt in prompts),
        "labels": sum(lengths),
    }


def _means(figures: list[Figures]) -> Line:
    """Means over the updates of a step; the learning rate is the last one's."""
    names = figures[0].sums
    means = {name: sum(item.sums[name] for item in figures) / len(figures) for name in names}
    norms = [item.grad_norm for item in figures]
    return {
        **means,
        "updates": len(figures),
        "grad_norm": sum(norms) / len(norms),
        "learning_rate": figures[-1].learning_rate,
    }
