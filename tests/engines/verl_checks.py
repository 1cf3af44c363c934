"""Runs in verl's environment: what verl makes of the things in a folder.

    .venvs/verl/bin/python -P verl_checks.py FOLDER

reads ``request.json``, ``cases.safetensors`` and the rendered data, and writes ``answers.json`` and
``answers.safetensors``. One process for all, since importing verl takes longer than the checks.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf
from safetensors.torch import load_file, save_file
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import AutoModelForCausalLM
from verl import DataProto
from verl.trainer.ppo.core_algos import (
    agg_loss,
    compute_grpo_outcome_advantage,
    get_policy_loss_fn,
    kl_penalty,
)
from verl.trainer.ppo.reward import get_custom_reward_fn, load_reward_manager
from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler
from verl.utils import hf_tokenizer
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from instella.engines.verl.inside import check, compose_words


def configurations(request: dict[str, Any]) -> dict[str, Any]:
    """Each stage's configuration after verl validated it; what a wrong name gives."""
    stages = {name: check({"words": words})["config"] for name, words in request["words"].items()}
    wrong = "accepted"
    try:
        compose_words([*request["words"]["grpo1"], "actor_rollout_ref.rollout.temprature=1.0"])
    except ConfigCompositionException as error:
        wrong = str(error)
    typo = "+actor_rollout_ref.rollout.engine_kwargs.vllm.enforce_eagr=true"
    check({"words": [*request["words"]["grpo1"], typo]})
    return {"stages": stages, "wrong_name": wrong, "typo_below_engine_kwargs": "accepted"}


def model_settings(config: Any) -> dict[str, Any]:
    """What every worker makes of the model's part, which loads its module too."""
    made = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    return {
        "architectures": made.architectures,
        "positions": made.hf_config.max_position_embeddings,
        "attention": made.hf_config._attn_implementation,
    }


def data(config: Any, tokenizer: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Rows as verl reads them, their ids, and the steps before and after resumes."""
    dataset = create_rl_dataset(
        config.data.train_files, config.data, tokenizer, None, is_train=True
    )
    validation = create_rl_dataset(
        config.data.val_files, config.data, tokenizer, None, is_train=False
    )
    builder = create_continuous_token_builder(tokenizer, hf_model_type="instella")
    rows = [dataset[number] for number in range(len(dataset))]

    def loader() -> Any:
        return StatefulDataLoader(
            dataset=dataset,
            batch_size=config.data.train_batch_size,
            num_workers=config.data.dataloader_num_workers,
            drop_last=True,
            collate_fn=collate_fn,
            sampler=create_rl_sampler(config.data, dataset),
        )

    def keys(batch: dict[str, Any]) -> list[str]:
        return [info["key"] for info in batch["extra_info"]]

    steps = [keys(batch) for batch in loader()]
    resumed = {}
    for step in request["resume_at"]:
        first = loader()
        beginning = iter(first)
        for _ in range(step):
            next(beginning)
        second = loader()
        second.load_state_dict(first.state_dict())
        resumed[str(step)] = [keys(batch) for batch in second]
    return {
        "steps": steps,
        "resumed": resumed,
        "indices": [row["index"] for row in rows],
        "ids": {
            row["extra_info"]["key"]: list(builder.build_initial_tokens(list(row["raw_prompt"])))
            for row in rows
        },
        "sources": [row["data_source"] for row in rows],
        "golds": {row["extra_info"]["key"]: row["reward_model"]["ground_truth"] for row in rows},
        "validation": [dataset_row["raw_prompt"] for dataset_row in validation],
    }


def rewards(config: Any, tokenizer: Any, request: dict[str, Any]) -> dict[str, Any]:
    """What verl's reward manager gives for responses; whether the old name of its setting acts."""
    manager = load_reward_manager(config, tokenizer)

    async def all_of_them() -> list[dict[str, Any]]:
        return [await manager.run_single(item(*pair)) for pair in request["graded"]]

    def item(gold: str, response: str) -> DataProto:
        ids = torch.tensor(
            [tokenizer(response, add_special_tokens=False)["input_ids"]], dtype=torch.int64
        )
        mask = torch.ones(1, 3 + ids.shape[1], dtype=torch.int64)
        return DataProto.from_dict(
            tensors={"responses": ids, "attention_mask": mask},
            non_tensors={
                "data_source": ["any"],
                "reward_model": [{"ground_truth": gold, "style": "rule"}],
                "extra_info": [{"index": 0}],
            },
        )

    given = manager.loop.run_until_complete(all_of_them())
    old = compose_words([
        "actor_rollout_ref.rollout.name=vllm",
        "custom_reward_function.path=pkg://instella.engines.verl.reward",
    ])  # fmt: skip
    return {"given": given, "old_name_acts": get_custom_reward_fn(old) is not None}


def losses(
    config: Any, cases: dict[str, torch.Tensor], names: list[str]
) -> dict[str, torch.Tensor]:
    """verl's policy loss, KL and their sum of each case, with gradients."""
    found = {}
    vanilla = get_policy_loss_fn("vanilla")
    for name in names:
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        case = {
            key.split(".")[1]: value for key, value in cases.items() if key.startswith(f"{name}.")
        }
        mask = case["mask"].bool()
        everything = {
            "dp_size": 1, "batch_num_tokens": int(case["normalizer"]),
            "global_batch_size": len(mask), "loss_scale_factor": None,
        }  # fmt: skip
        actor.global_batch_info.update(everything)
        old, advantages = case["old"], case["advantages"][:, None] * torch.ones_like(case["old"])
        log = case["logprobs"].clone().requires_grad_()
        policy, _ = vanilla(
            old_log_prob=old, log_prob=log, advantages=advantages, response_mask=mask,
            loss_agg_mode="token-mean", config=actor,
        )  # fmt: skip
        policy.backward()
        found |= {f"{name}.policy": policy.detach(), f"{name}.policy_gradient": log.grad}
        log = case["logprobs"].clone().requires_grad_()
        divergence = kl_penalty(log, case["reference"], actor.kl_loss_type)
        kl = agg_loss(divergence, mask, actor.loss_agg_mode, **actor.global_batch_info)
        kl.backward()
        found |= {f"{name}.divergence": divergence.detach(), f"{name}.kl": kl.detach()}
        found[f"{name}.kl_gradient"] = log.grad
    return found


def advantages(rewards_of: torch.Tensor) -> torch.Tensor:
    """verl's advantages of rewards [groups, n], at the last token of each response."""
    groups, samples = rewards_of.shape
    tokens = torch.zeros(groups * samples, 2)
    tokens[:, -1] = rewards_of.reshape(-1)
    index = [group for group in range(groups) for _ in range(samples)]
    made, _ = compute_grpo_outcome_advantage(tokens, torch.ones_like(tokens), np.array(index))
    return made[:, -1].reshape(groups, samples).clone()


def logits(start: Path, ids: torch.Tensor, lengths: list[int]) -> dict[str, torch.Tensor]:
    """Of rows [B, T] one by one, padded, and packed into one row; gradients with recomputation.

    The packed row is longer than any position, as a micro-batch of verl's may be.
    """
    longest = max(lengths)
    assert sum(lengths) > longest
    model = AutoModelForCausalLM.from_pretrained(
        start, attn_implementation="sdpa", max_position_embeddings=longest
    )
    rows = [row[:length] for row, length in zip(ids, lengths, strict=True)]
    alone = torch.cat([model(input_ids=row[None]).logits[0] for row in rows])
    mask = torch.arange(ids.shape[1])[None] < torch.tensor(lengths)[:, None]
    padded = model(input_ids=ids, attention_mask=mask.long()).logits
    packed = model(
        input_ids=torch.cat(rows)[None],
        position_ids=torch.cat([torch.arange(length) for length in lengths])[None],
    ).logits[0]
    gradients = []
    for again in (False, True):
        model.train()
        if again:
            model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False}
            )
        model.zero_grad()
        model(input_ids=ids).logits.square().mean().backward()
        gradients.append(torch.cat([item.grad.reshape(-1) for item in model.parameters()]))
    return {
        "alone": alone.detach(), "padded": padded[mask].detach(), "packed": packed.detach(),
        "gradient": gradients[0], "gradient_again": gradients[1],
    }  # fmt: skip


def main() -> None:
    folder = Path(sys.argv[1])
    request = json.loads((folder / "request.json").read_bytes())
    cases = load_file(folder / "cases.safetensors")
    os.environ["HOME"] = str(folder)  # verl and datasets keep copies there
    config = compose_words(request["words"]["small"])
    OmegaConf.resolve(config.data)
    tokenizer = hf_tokenizer(request["start"])
    asyncio.set_event_loop(asyncio.new_event_loop())
    answers = {
        **configurations(request),
        "model": model_settings(config),
        "data": data(config, tokenizer, request),
        "rewards": rewards(config, tokenizer, request),
    }
    tensors = losses(config, cases, request["cases"])
    for name in request["groups"]:
        tensors[f"advantages.{name}"] = advantages(cases[f"rewards.{name}"])
    tensors |= logits(Path(request["start"]), cases["ids"], request["lengths"])
    save_file({name: value.contiguous() for name, value in tensors.items()},
              folder / "answers.safetensors")  # fmt: skip
    (folder / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
