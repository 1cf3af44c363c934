"""The settings of a GRPO stage as overrides of verl's configuration.

An override without ``+`` must name what verl's own configuration has, so hydra refuses a
misspelt name. What cannot be said to verl is refused here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.engines.verl.options import Options
from instella.errors import BadUse
from instella.recipe.settings import Policy, Recipe, Training

MODEL_MODULE = "instella.engines.verl.model"
REWARD_MODULE = "instella.engines.verl.reward"
ORDER_MODULE = "instella.engines.verl.order"
TRAIN, VALIDATION = "train.parquet", "validation.parquet"
CHECKPOINTS, METRICS = "checkpoints", "metrics.jsonl"

Overrides = dict[str, Any]
"""Dotted name, with a leading ``+`` where verl has no such key, to a plain value."""


@dataclass(frozen=True)
class Place:
    """Where a rendered stage runs.

    Attributes:
        folder: of the rendered files, absolute, seen by every node.
        start: folder of the checkpoint to start from.
        nodes: machines.
        accelerators: of one machine.
    """

    folder: Path
    start: Path
    nodes: int
    accelerators: int


def overrides(recipe: Recipe, stage: str, options: Options, place: Place) -> Overrides:
    """All overrides of one stage, in verl's words.

    Args:
        recipe: of the stage.
        stage: ``grpo1``, ``grpo2`` or ``grpo3``.
        options: what the settings leave open.
        place: where it runs.

    Raises:
        BadUse: not a GRPO stage, or one that verl cannot do as the settings say.
    """
    chosen = policy(recipe, stage)
    _refuse_what_verl_cannot(stage, chosen, options, place)
    return {
        **_data(chosen, place),
        **_model(recipe, stage, chosen, options, place),
        **_actor(chosen, options),
        **_reference(options),
        **_rollout(chosen, options),
        **_algorithm(chosen),
        **_reward(options),
        **_trainer(recipe, stage, chosen, options, place),
    }


def policy(recipe: Recipe, stage: str) -> Policy:
    """The settings of a GRPO stage.

    Raises:
        BadUse: the recipe has no GRPO stage of this name.
    """
    found = getattr(recipe.stages, stage, None)
    if not isinstance(found, Policy):
        names = [name for name in recipe.stages.__dataclass_fields__
                 if isinstance(getattr(recipe.stages, name), Policy)]  # fmt: skip
        raise BadUse(f"{stage}: verl runs the GRPO stages only: {', '.join(names)}")
    return found


def _refuse_what_verl_cannot(stage: str, chosen: Policy, options: Options, place: Place) -> None:
    training, samples = chosen.training, chosen.samples_per_prompt
    batch, prompts = training.global_batch, chosen.prompts_per_step
    ranks = place.nodes * place.accelerators
    length = chosen.data.max_prompt_tokens + chosen.max_response_tokens
    if batch % samples or prompts % (batch // samples):
        raise BadUse(
            f"{stage}: verl counts a mini-batch in prompts: global_batch {batch} must be a multiple "
            f"of samples_per_prompt {samples} and divide the {prompts * samples} responses a step"
        )
    if batch % ranks:
        raise BadUse(
            f"{stage}: global_batch {batch} is no multiple of {ranks} accelerators: verl would fill "
            "it up with padding; take other nodes"
        )
    schedule = training.schedule
    if schedule.kind != "constant" or schedule.warmup_steps or schedule.warmup_ratio:
        raise BadUse(
            f"{stage}: verl moves its schedule once a step and the kit once an update, so only a "
            "constant rate without warm-up is the same in both"
        )
    if training.optimizer.max_grad_norm is None:
        raise BadUse(f"{stage}: verl always clips the gradient; set max_grad_norm")
    if not training.reset_optimizer:
        raise BadUse(f"{stage}: verl starts with new moments; set reset_optimizer: true")
    if options.tokens_per_gpu < length:
        raise BadUse(
            f"{stage}: tokens_per_gpu {options.tokens_per_gpu} is less than one row of {length}"
        )


def longest_row(recipe: Recipe, stage: str) -> int:
    """Tokens that the network of a stage has to take: its own rows and those of its ancestors.

    The kit's stages raise the position limit to it and never lower it.
    """
    limit, name = recipe.model.max_position_embeddings, stage
    while name != "scratch":
        chosen = getattr(recipe.stages, name)
        if isinstance(chosen, Policy):
            length = chosen.data.max_prompt_tokens + chosen.max_response_tokens
        else:
            length = chosen.data.sequence_length
        limit, name = max(limit, length), chosen.init
    return limit


def _data(chosen: Policy, place: Place) -> Overrides:
    return {
        "data.train_files": [str(place.folder / TRAIN)],
        "data.val_files": [str(place.folder / VALIDATION)],
        "data.train_batch_size": chosen.prompts_per_step,
        "data.max_prompt_length": chosen.data.max_prompt_tokens,
        "data.max_response_length": chosen.max_response_tokens,
        # The rows stand in the file as the steps take them, all epochs one after another: so
        # no resume meets the edge of an epoch, where verl would begin the order anew.
        "data.shuffle": False,
        "data.validation_shuffle": False,
        "data.seed": chosen.training.seed,
        "data.dataloader_num_workers": 0,
        # Long prompts were dropped when the data was made, and the rendering checked them.
        "data.filter_overlong_prompts": False,
        "data.truncation": "error",
        "data.trust_remote_code": False,
    }


def _model(recipe: Recipe, stage: str, chosen: Policy, options: Options, place: Place) -> Overrides:
    model = "actor_rollout_ref.model"
    return {
        f"{model}.path": str(place.start),
        f"{model}.external_lib": MODEL_MODULE,
        f"{model}.trust_remote_code": False,
        f"{model}.use_remove_padding": True,
        f"{model}.enable_gradient_checkpointing": chosen.training.activation_checkpointing,
        f"+{model}.override_config.attn_implementation": options.attention,
        f"+{model}.override_config.max_position_embeddings": longest_row(recipe, stage),
    }


def _actor(chosen: Policy, options: Options) -> Overrides:
    training, actor = chosen.training, "actor_rollout_ref.actor"
    return {
        f"{actor}.strategy": "fsdp2",
        # verl multiplies it by the samples of a prompt.
        f"{actor}.ppo_mini_batch_size": training.global_batch // chosen.samples_per_prompt,
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": options.tokens_per_gpu,
        f"{actor}.ppo_epochs": 1,
        f"{actor}.shuffle": False,
        f"{actor}.data_loader_seed": training.seed,
        f"{actor}.policy_loss.loss_mode": "vanilla",
        f"{actor}.clip_ratio": chosen.clip_low,
        f"{actor}.clip_ratio_low": chosen.clip_low,
        f"{actor}.clip_ratio_high": chosen.clip_high,
        f"{actor}.clip_ratio_c": chosen.dual_clip,
        f"{actor}.loss_agg_mode": "token-mean",
        f"{actor}.use_kl_loss": chosen.kl_coefficient > 0.0,
        f"{actor}.kl_loss_coef": chosen.kl_coefficient,
        f"{actor}.kl_loss_type": "low_var_kl",
        # Logged, not trained on; in chunks, since it is made from all logits of a row.
        f"{actor}.entropy_coeff": 0,
        f"{actor}.calculate_entropy": True,
        f"{actor}.entropy_from_logits_with_chunking": True,
        f"{actor}.use_torch_compile": False,
        **_optimizer(training),
        **_precision(f"{actor}.fsdp_config"),
        f"{actor}.fsdp_config.param_offload": False,
        f"{actor}.fsdp_config.optimizer_offload": False,
        f"{actor}.fsdp_config.seed": training.seed,
        # hf_model keeps float32; verl's merger makes bfloat16 of everything.
        f"{actor}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
    }


def _optimizer(training: Training) -> Overrides:
    chosen, optim = training.optimizer, "actor_rollout_ref.actor.optim"
    return {
        f"{optim}.optimizer": "AdamW",
        f"{optim}.lr": chosen.learning_rate,
        f"{optim}.betas": [chosen.beta1, chosen.beta2],
        f"{optim}.weight_decay": chosen.weight_decay,
        f"+{optim}.override_optimizer_config.eps": chosen.epsilon,
        # The optimizer reads clip_grad; grad_clip of the actor is another name for the same.
        f"{optim}.clip_grad": chosen.max_grad_norm,
        "actor_rollout_ref.actor.grad_clip": chosen.max_grad_norm,
        f"{optim}.lr_scheduler_type": "constant",
        f"{optim}.lr_warmup_steps": 0,
    }


def _precision(engine: str) -> Overrides:
    """Float32 weights, products in bfloat16: said in full, since ``dtype`` alone changes nothing.

    verl asks ``mixed_precision.param_dtype`` alone whether to compute in bfloat16.
    """
    return {
        f"{engine}.model_dtype": "fp32",
        f"{engine}.dtype": "bfloat16",
        f"+{engine}.mixed_precision.param_dtype": "bf16",
        f"+{engine}.mixed_precision.reduce_dtype": "fp32",
        f"+{engine}.mixed_precision.buffer_dtype": "fp32",
        f"{engine}.full_determinism": False,
        f"{engine}.use_torch_compile": False,
    }


def _reference(options: Options) -> Overrides:
    engine = "actor_rollout_ref.ref.fsdp_config"
    return {**_precision(engine), f"{engine}.param_offload": options.offload_reference}


def _rollout(chosen: Policy, options: Options) -> Overrides:
    rollout = "actor_rollout_ref.rollout"
    found = {
        f"{rollout}.name": "vllm",
        f"{rollout}.mode": "async",
        f"{rollout}.n": chosen.samples_per_prompt,
        f"{rollout}.temperature": chosen.temperature,
        f"{rollout}.top_p": chosen.top_p,
        f"{rollout}.top_k": -1,
        f"{rollout}.do_sample": True,
        f"{rollout}.seed": chosen.training.seed,
        # It gives every request one seed: the answers of a group become equal, no advantage
        # is left, and nothing is learned.
        f"{rollout}.full_determinism": False,
        f"{rollout}.dtype": "bfloat16",
        f"{rollout}.load_format": "dummy",
        f"{rollout}.ignore_eos": False,
        # As published, and all that the kit's model for vLLM takes.
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.gpu_memory_utilization": options.rollout_memory,
        f"{rollout}.max_num_batched_tokens": options.rollout_tokens,
        f"{rollout}.max_model_len": chosen.data.max_prompt_tokens + chosen.max_response_tokens,
        f"{rollout}.enforce_eager": options.enforce_eager,
        # For the difference between trainer and rollout, which verl logs each step.
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.val_kwargs.n": 1,
        f"{rollout}.val_kwargs.do_sample": False,
        f"{rollout}.val_kwargs.temperature": 0,
    }
    for name, value in sorted(options.engine_arguments().items()):
        found[f"+{rollout}.engine_kwargs.vllm.{name}"] = value
    return found


def _algorithm(chosen: Policy) -> Overrides:
    return {
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": chosen.normalize_by_std,
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": False,
        "algorithm.rollout_correction.bypass_mode": False,
    }


def _reward(options: Options) -> Overrides:
    # Not the top level's custom_reward_function: the trainer overlooks it and takes a scorer
    # of its own.
    return {
        "reward.custom_reward_function.path": f"pkg://{REWARD_MODULE}",
        "reward.custom_reward_function.name": "compute_score",
        "reward.reward_manager.name": "naive",
        "reward.num_workers": options.reward_workers,
    }


def _trainer(
    recipe: Recipe, stage: str, chosen: Policy, options: Options, place: Place
) -> Overrides:
    training = chosen.training
    return {
        "trainer.device": "cuda",
        "trainer.nnodes": place.nodes,
        "trainer.n_gpus_per_node": place.accelerators,
        "trainer.project_name": recipe.name,
        "trainer.experiment_name": stage,
        "trainer.logger": ["console", "file"],
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": "sync",
        "trainer.v1.sampler.custom_sampler.path": f"pkg://{ORDER_MODULE}",
        "trainer.v1.sampler.custom_sampler.name": "OrderedReplayBuffer",
        "+trainer.v1.sampler.sampler_kwargs.samples": chosen.samples_per_prompt,
        "trainer.total_epochs": 1,
        "trainer.save_freq": training.save_every,
        "trainer.test_freq": chosen.test_every or -1,
        "trainer.val_before_train": chosen.test_every is not None,
        "trainer.resume_mode": "auto",
        "trainer.default_local_dir": str(place.folder / CHECKPOINTS),
        "trainer.max_actor_ckpt_to_keep": options.keep_checkpoints,
    }
