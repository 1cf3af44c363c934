"""When GRPO gives up, and what it logs beside its artifact."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rollout_helpers import EOS, network, options, prompts

from instella.artifacts.notes import FOLDER, HEALTH, NoteLog
from instella.errors import KitError
from instella.recipe.settings import LOGITS_AT_ONCE, Health
from instella.rollout.episodes import Episodes, Scoring, episode_logprobs, score_share
from instella.rollout.generate import generate
from instella.rollout.health import check_health, heard_at, rollout_figures
from instella.training.reduction import ALONE

NUMERICS = "portable-x86"


def lines(rewards, no_signal=0.0):
    return [
        {"step": step, "reward": reward, "no_signal": no_signal}
        for step, reward in enumerate(rewards, 1)
    ]


def test_a_stage_gives_up_when_no_group_has_a_signal():
    chosen = Health(silent_steps=3, collapse=None)
    silent = lines([0.0] * 3, 1.0)
    check_health(silent[:2], chosen, "grpo1")
    check_health([*lines([0.5], 0.9), *silent[:2]], chosen, "grpo1")
    with pytest.raises(KitError, match=r"grpo1: step 3: for 3 steps .* health\.silent_steps"):
        check_health(silent, chosen, "grpo1")
    check_health(silent, Health(silent_steps=None), "grpo1")


def test_a_stage_gives_up_when_the_reward_collapses():
    chosen = Health(window=2, collapse=0.5)
    check_health(lines([0.1, 0.2, 0.8, 0.8, 0.5, 0.4]), chosen, "grpo1")
    with pytest.raises(KitError, match=r"step 6: the mean reward of 2 steps fell to 0.35 from 0.8"):
        check_health(lines([0.1, 0.2, 0.8, 0.8, 0.4, 0.3]), chosen, "grpo1")
    # What was never better has not collapsed, and a window is needed on both sides.
    check_health(lines([0.0] * 9), chosen, "grpo1")
    check_health(lines([0.8, 0.8, 0.0]), chosen, "grpo1")
    check_health(lines([0.8, 0.8, 0.0, 0.0]), Health(window=2, collapse=None), "grpo1")


def test_the_log_goes_on_where_the_stage_does(tmp_path):
    log = NoteLog(tmp_path, HEALTH, 0)
    for step in (1, 2, 3):
        log.write({"step": step, "entropy": 0.5 * step, "bad": math.nan})
    path = tmp_path / FOLDER / HEALTH
    path.write_bytes(path.read_bytes() + b'{"step":4,"entr')
    NoteLog(tmp_path, HEALTH, 2).write({"step": 3, "entropy": 9.0})
    found = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert found == [{"step": 1, "entropy": 0.5}, {"step": 2, "entropy": 1.0},
                     {"step": 3, "entropy": 9.0}]  # fmt: skip


def scored(model, episodes, parts, at_once=LOGITS_AT_ONCE):
    """Log-probabilities and entropies of all rows, by passes without gradients."""
    with heard_at(model.lm_head) as heard:
        scoring = Scoring(episodes, heard, at_once)
        score_share(ALONE, model, scoring, parts)
    return scoring.together(ALONE)


def test_entropy_and_difference_are_those_of_the_network():
    """Against the definition, from logits computed apart; rows as the sampler gave them."""
    model, asked = network(NUMERICS), prompts(2)
    answers = generate(model, asked, **options(samples=2), stream=[["a"], ["b"]])
    rows = [(p, answer) for p, found in zip(asked, answers, strict=True) for answer in found]
    width = 24
    ids = torch.full((4, width), EOS)
    mask, sampled = torch.zeros(4, width, dtype=torch.bool), torch.zeros(4, width - 1)
    for row, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer.ids)
        ids[row, :end] = torch.tensor([*prompt, *answer.ids])
        mask[row, len(prompt) : end] = True
        sampled[row, len(prompt) - 1 : end - 1] = torch.from_numpy(answer.logprobs)
    episodes = Episodes(ids, mask, torch.ones(4, dtype=torch.bool), sampled)
    parts = [np.array([0, 1]), np.array([2, 3])]
    old, entropy = scored(model, episodes, parts)
    assert torch.equal(old, episode_logprobs(ALONE, model, episodes, parts))
    with torch.no_grad():
        logits = model.lm_head(model.hidden(ids)).double()[:, :-1]
    probabilities = torch.softmax(logits, -1)
    wanted = -(probabilities * probabilities.log()).sum(-1)[mask[:, 1:]]
    assert torch.allclose(entropy[mask[:, 1:]].double(), wanted, atol=1e-5)
    assert not entropy[~mask[:, 1:]].any()
    # A head that runs over parts of the columns is heard alike.
    few = 1 << 10
    assert torch.allclose(scored(model, episodes, parts, few)[1], entropy, atol=1e-6)
    # So is a pass of training, whose backward pass runs those parts again.
    with heard_at(model.lm_head) as heard:
        scoring = Scoring(episodes, heard, few)
        for part in parts:
            scoring.score(model, part).sum().backward()
    assert model.lm_head.weight.grad.abs().sum() > 0
    again, trained_entropy = scoring.together(ALONE)
    assert torch.equal(again, scored(model, episodes, parts, few)[0])
    assert torch.allclose(trained_entropy, entropy, atol=1e-6)
    rewards = np.array([[1.0, 0.0], [0.0, 0.0]])
    found = rollout_figures(mask, old, sampled, entropy, rewards)
    assert found["entropy"] == pytest.approx(float(wanted.mean()), abs=1e-5)
    assert 0 <= found["rollout_difference"] <= found["rollout_difference_max"] < 1e-5
    assert found["reward_spread"] == pytest.approx(math.sqrt(3) / 4)
    shifted = rollout_figures(mask, old, sampled + 0.25, entropy, rewards)
    assert shifted["rollout_difference"] == pytest.approx(0.25, abs=1e-5)


def test_the_head_is_left_as_it_was():
    model = network(NUMERICS)
    episodes = SimpleNamespace(ids=torch.full((1, 4), 2), mask=torch.tensor([[False] * 3 + [True]]))
    scored(model, episodes, [np.array([0])])
    assert not model.lm_head._forward_hooks
