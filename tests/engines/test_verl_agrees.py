"""verl itself, in its own environment: it takes what is rendered and computes what the kit does."""

from typing import Any

import pytest
import torch
from cases import CASES, GRADED, GROUPS, LENGTHS, random_ids
from conftest import MODEL, QUESTIONS, SUFFIX, Answers
from torch import Tensor

from instella.canonical import read_jsonl
from instella.engines.verl.configuration import ORDER_MODULE, REWARD_MODULE
from instella.engines.verl.prompts import order_of
from instella.errors import BadUse
from instella.network.folder import load_folder
from instella.recipe.settings import Recipe
from instella.rewards.extract import last_boxed
from instella.rewards.grade import CORRECT, Grader
from instella.training.objectives import group_advantages, low_variance_kl, policy_loss

# Where the kit adds the KL term to each token, verl adds two means: their roundings differ by
# at most so many halves of a last place of what is added. Measured: 3.
ROUNDINGS = 4.0 * 2.0**-24
COEFFICIENT = 0.001


def of_stage(answers: Answers, stage: str, path: str) -> Any:
    value = answers.said["stages"][stage]
    for name in path.split("."):
        value = value[name]
    return value


# Configuration.


@pytest.mark.parametrize("stage", ["grpo1", "grpo2", "grpo3"])
def test_verl_composes_and_validates_every_stage(
    answers: Answers, full: Recipe, stage: str
) -> None:
    chosen = getattr(full.stages, stage)
    wanted = {
        "data.train_batch_size": chosen.prompts_per_step,
        "actor_rollout_ref.rollout.n": chosen.samples_per_prompt,
        "actor_rollout_ref.actor.optim.lr": chosen.training.optimizer.learning_rate,
        "actor_rollout_ref.actor.optim.betas": [0.9, 0.999],
        "actor_rollout_ref.actor.clip_ratio_c": chosen.dual_clip,
        "actor_rollout_ref.actor.kl_loss_coef": chosen.kl_coefficient,
        "actor_rollout_ref.rollout.engine_kwargs.vllm.disable_custom_all_reduce": True,
        "trainer.save_freq": chosen.training.save_every,
    }
    assert {path: of_stage(answers, stage, path) for path in wanted} == wanted


def test_a_misspelt_name_is_found_by_hydra_but_not_below_engine_kwargs(answers: Answers) -> None:
    assert "Could not override 'actor_rollout_ref.rollout.temprature'" in answers.said["wrong_name"]
    assert answers.said["typo_below_engine_kwargs"] == "accepted"


@pytest.mark.parametrize("stage", ["grpo1", "grpo2", "grpo3"])
def test_what_verl_would_overlook_is_said_where_it_looks(answers: Answers, stage: str) -> None:
    def said(path: str) -> Any:
        return of_stage(answers, stage, path)

    # The name at the top level is not read by the trainer.
    assert said("reward.custom_reward_function.path") == f"pkg://{REWARD_MODULE}"
    assert said("custom_reward_function.path") is None
    assert answers.said["rewards"]["old_name_acts"] is False
    # Equal seeds would make the answers of a group equal.
    assert said("actor_rollout_ref.rollout.full_determinism") is False
    # Whether products are in bfloat16 is asked of mixed_precision alone.
    for part in ("actor", "ref"):
        engine = said(f"actor_rollout_ref.{part}.fsdp_config")
        assert (
            engine["mixed_precision"]["param_dtype"] == "bf16" and engine["model_dtype"] == "fp32"
        )
    # Order of completion, random names.
    assert said("trainer.v1.sampler.custom_sampler.path") == f"pkg://{ORDER_MODULE}"


def test_every_worker_knows_the_model(answers: Answers) -> None:
    """The position limit is that of the longest rows on the way to the stage, as in the kit."""
    assert answers.said["model"] == {
        "architectures": ["InstellaForCausalLM"],
        "positions": 32768,
        "attention": "flash_attention_2",
    }


# Data.


def test_verl_takes_the_kits_steps_and_goes_on_after_any_of_them(
    answers: Answers, small: Recipe
) -> None:
    """Also at the edges of an epoch, steps 3 and 6: in the file there are none."""
    order = order_of(small.stages.grpo1, len(QUESTIONS))
    steps = [[f"q{n}" for n in order.at(step)[1]] for step in range(order.total_steps)]
    assert answers.said["data"]["steps"] == steps
    for step, rest in answers.said["data"]["resumed"].items():
        assert rest == steps[int(step) :]
    assert answers.said["data"]["indices"] == list(range(27))


def test_verl_asks_in_the_ids_of_the_tokens_stage(answers: Answers, tokens: Any) -> None:
    rows = {row["key"]: row for row in read_jsonl(tokens / "prompts.jsonl")}
    said = answers.said["data"]
    assert set(said["ids"]) == set(rows)
    assert all(said["ids"][key] == rows[key]["ids"] for key in rows)
    assert all(said["golds"][key] == rows[key]["answer"] for key in rows)
    assert said["validation"] == [[{"role": "user", "content": f"1+1? {SUFFIX}"}]]


# Reward.


def test_verl_rewards_as_the_kit_does(answers: Answers) -> None:
    with Grader() as grader:
        wanted = [grader.verdict(gold, last_boxed(text)) for gold, text in GRADED]
    given = answers.said["rewards"]["given"]
    assert [item["reward_score"] for item in given] == [
        float(verdict.label == CORRECT) for verdict in wanted
    ]
    for item, verdict in zip(given, wanted, strict=True):
        assert item["reward_extra_info"]["refused"] == float(verdict.refused)
        assert item["reward_extra_info"]["timed_out"] == 0.0
    assert {0.0, 1.0} == {item["reward_score"] for item in given}


# Mathematics.


def last_places(left: Tensor, right: Tensor) -> int:
    """Largest distance in units of the last place; float32 of one sign."""
    return int((left.view(torch.int32).long() - right.view(torch.int32).long()).abs().max())


@pytest.mark.parametrize("name", GROUPS)
def test_advantages_are_verls_to_one_unit_of_the_last_place(answers: Answers, name: str) -> None:
    """verl computes in float32, the kit in float64; equal rewards are zero in both."""
    ours, theirs = group_advantages(GROUPS[name], True), answers.tensors[f"advantages.{name}"]
    assert last_places(ours, theirs) <= 1
    if name == "all_equal":
        assert not ours.any() and not theirs.any()


def test_a_group_of_one_is_refused_here_and_rewarded_as_it_is_there() -> None:
    with pytest.raises(BadUse, match="n >= 2"):
        group_advantages([[1.0], [0.0]], True)


def ours_of(answers: Answers, name: str, coefficient: float) -> tuple[dict[str, Any], Any, Tensor]:
    case = {key.split(".")[1]: v for key, v in answers.cases.items() if key.startswith(f"{name}.")}
    logprobs = case["logprobs"].clone().requires_grad_()
    made = policy_loss(
        logprobs, case["old"], case["reference"] if coefficient else None, case["advantages"],
        case["mask"].bool(), clip_low=0.2, clip_high=0.2, dual_clip=3.0,
        kl_coefficient=coefficient, normalizer=int(case["normalizer"]),
    )  # fmt: skip
    made.loss.backward()
    assert logprobs.grad is not None
    return case, made, logprobs.grad


@pytest.mark.parametrize("name", CASES)
def test_policy_loss_and_gradient_are_verls_to_the_last_bit(answers: Answers, name: str) -> None:
    _, made, gradient = ours_of(answers, name, 0.0)
    assert torch.equal(made.loss.detach(), answers.tensors[f"{name}.policy"])
    assert torch.equal(gradient, answers.tensors[f"{name}.policy_gradient"])
    if name in ("all_clipped", "dual_clip", "no_signal"):
        assert not gradient.any()


@pytest.mark.parametrize("name", CASES)
def test_kl_of_each_token_is_verls_to_the_last_bit(answers: Answers, name: str) -> None:
    case, _, _ = ours_of(answers, name, COEFFICIENT)
    mask = case["mask"].bool()
    ours = low_variance_kl((case["reference"] - case["logprobs"]).clamp(-20.0, 20.0))
    assert torch.equal(ours[mask], answers.tensors[f"{name}.divergence"][mask])


@pytest.mark.parametrize("name", CASES)
def test_loss_with_kl_is_verls_but_for_the_order_of_the_sum(answers: Answers, name: str) -> None:
    case, made, gradient = ours_of(answers, name, COEFFICIENT)
    said = {key: answers.tensors[f"{name}.{key}"] for key in
            ("policy", "kl", "policy_gradient", "kl_gradient")}  # fmt: skip
    count = int(case["normalizer"])
    mask = case["mask"].bool()
    # What is summed up, by its size: rounding is relative to that and not to the result.
    magnitude = float(case["advantages"].abs().max()) * 3.0 + COEFFICIENT * 10.0
    loss = said["policy"] + COEFFICIENT * said["kl"]
    assert abs(float(made.loss.detach()) - float(loss)) <= ROUNDINGS * magnitude
    assert made.figures["kl_loss"] == pytest.approx(float(said["kl"]), rel=1e-6, abs=1e-12)
    theirs = said["policy_gradient"] + COEFFICIENT * said["kl_gradient"]
    change = (case["reference"] - case["logprobs"]).clamp(-20.0, 20.0)
    parts = said["policy_gradient"].abs() + COEFFICIENT / count * (change.exp() + 1.0)
    assert ((gradient - theirs).abs()[mask] <= ROUNDINGS * parts[mask]).all()
    assert not gradient[~mask].any() and not theirs[~mask].any()


# Model.


def test_the_model_for_verl_is_the_kits_network(answers: Answers, start: Any) -> None:
    """Alone, padded, and packed into one row as verl trains it; float32, logits about 1."""
    network = load_folder(start, "native-cpu")
    with torch.no_grad():
        logits = network(random_ids())
    ours = torch.cat([row[:length] for row, length in zip(logits, LENGTHS, strict=True)])
    assert ours.shape[1] == MODEL.vocab_size
    for name in ("alone", "padded", "packed"):
        torch.testing.assert_close(answers.tensors[name], ours, rtol=0.0, atol=5e-6)


def test_computing_layers_again_changes_no_gradient(answers: Answers) -> None:
    assert torch.equal(answers.tensors["gradient"], answers.tensors["gradient_again"])
    assert answers.tensors["gradient"].any()
