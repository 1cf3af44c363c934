"""Checks of the network and the training stages that span several settings."""

from typing import Any

from instella.numerics import GPU_CLASSES, PORTABLE
from instella.recipe.fields import Place, Places, suggestion
from instella.recipe.graph import checkpoints
from instella.recipe.settings import Policy, Recipe, Schedule, Training


def check_training(recipe: Recipe, places: Places) -> None:
    """Shapes, batches, starting points and seeds; BadUse at the first fault."""
    _check_model(recipe, places)
    _check_seeds(recipe, places)
    _check_hardware(recipe, places)
    for stage in recipe.stages.__dataclass_fields__:
        settings = getattr(recipe.stages, stage)
        _check_batches(settings.training, ("stages", stage, "training"), places)
        _check_kept(settings.training, ("stages", stage, "training"), places)
        _check_optimizer(settings, ("stages", stage, "training"), places)
        _check_computing(recipe.numerics, settings.training, ("stages", stage, "training"), places)
        _check_init(recipe, stage, places)
        _check_lengths(recipe, stage, places)
        if isinstance(settings, Policy):
            if settings.training.compile:
                what = "is true, and each token of an answer has a shape of its own"
                raise places.error(("stages", stage, "training", "compile"), what, "write false")
            _check_policy(settings, ("stages", stage), places)
    for stage in ("sft", "math_sft1", "math_sft2"):
        settings = getattr(recipe.stages, stage)
        if settings.reduce_loss == "mean" and settings.loss_scale != 1.0:
            what = "has no effect while reduce_loss is mean"
            raise places.error(("stages", stage, "loss_scale"), what, "remove it or write sum")


def _check_hardware(recipe: Recipe, places: Places) -> None:
    if recipe.hardware is None:
        return
    stages = recipe.stages.__dataclass_fields__
    for stage, nodes in recipe.hardware.nodes.items():
        place: Place = ("hardware", "nodes", stage)
        if stage not in stages:
            raise places.error(place, "is not a training stage", suggestion(stage, stages))
        if nodes < 1:
            raise places.error(place, f"is {nodes}, too small", "write 1 or more")


def _check_model(recipe: Recipe, places: Places) -> None:
    model = recipe.model
    if model.hidden_size % model.num_attention_heads:
        what = f"is {model.hidden_size}, not a multiple of {model.num_attention_heads} heads"
        raise places.error(("model", "hidden_size"), what, "change one of the two")
    head = model.hidden_size // model.num_attention_heads
    if head % 2:
        what = f"gives heads of {head}, but rotary embeddings turn pairs"
        cure = "make hidden_size / num_attention_heads even"
        raise places.error(("model", "hidden_size"), what, cure)


def _check_seeds(recipe: Recipe, places: Places) -> None:
    if recipe.stages.pretrain_stage1.seeds:
        what = "is set, but only the second stage is trained once for each seed"
        raise places.error(("stages", "pretrain_stage1", "seeds"), what, "remove it")
    place: Place = ("stages", "pretrain_stage2", "seeds")
    seeds = recipe.stages.pretrain_stage2.seeds
    if not seeds:
        raise places.error(place, "names no seed", "write at least one, such as [5796]")
    for index, seed in enumerate(seeds):
        if seed < 0:
            raise places.error((*place, index), f"is {seed}", "write 0 or more")
        if seed in seeds[:index]:
            what = f"is {seed}, which stands before it too"
            raise places.error((*place, index), what, "the seeds must differ")


def _check_batches(training: Training, place: Place, places: Places) -> None:
    count, rest = divmod(training.global_batch, training.micro_batch)
    if rest or count & (count - 1):
        what = f"is {training.global_batch}, not a power of two times micro_batch"
        what += f" {training.micro_batch}"
        below = 1 << max(count.bit_length() - 1, 0)
        cure = f"write {training.micro_batch * below} or {training.micro_batch * below * 2}"
        raise places.error((*place, "global_batch"), what, cure)


def _check_kept(training: Training, place: Place, places: Places) -> None:
    kept, every = training.keep_checkpoints_every, training.ledger_every
    if kept is not None and kept % every:
        what = f"is {kept}, not a multiple of ledger_every {every}, so no digest vouches for them"
        cure = f"write {max(every, kept // every * every)}"
        raise places.error((*place, "keep_checkpoints_every"), what, cure)


def _check_computing(numerics: str, training: Training, place: Place, places: Places) -> None:
    if numerics == PORTABLE and training.precision != "float32":
        what = f"is {training.precision}, and numerics {PORTABLE} are defined for float32 only"
        cure = "write float32, or choose other numerics"
        raise places.error((*place, "precision"), what, cure)
    if numerics == PORTABLE and training.compile:
        what = f"is true, and numerics {PORTABLE} are defined for torch's own kernels only"
        raise places.error((*place, "compile"), what, "write false, or choose other numerics")
    if training.attention == "flash_attention_2":
        if numerics not in GPU_CLASSES:
            what = f"is flash_attention_2, which has no kernel for numerics {numerics}"
            cure = f"write sdpa, or choose {' or '.join(GPU_CLASSES)}"
            raise places.error((*place, "attention"), what, cure)
        if training.precision != "bfloat16":
            what = f"is flash_attention_2, which does not compute in {training.precision}"
            raise places.error((*place, "attention"), what, "write precision: bfloat16, or sdpa")


def _check_optimizer(settings: Any, place: Place, places: Places) -> None:
    training: Training = settings.training
    for name in ("beta1", "beta2"):
        if getattr(training.optimizer, name) >= 1.0:
            what = "is 1, which divides by zero at the first update"
            raise places.error((*place, "optimizer", name), what, "write less than 1")
    schedule: Schedule = training.schedule
    if schedule.warmup_ratio is not None and schedule.warmup_steps:
        what = f"and warmup_steps {schedule.warmup_steps} are both set"
        raise places.error((*place, "schedule", "warmup_ratio"), what, "remove one")
    if training.max_steps is None:
        return
    updates = training.max_steps
    if isinstance(settings, Policy):  # its max_steps counts rollout steps of several updates
        updates *= settings.prompts_per_step * settings.samples_per_prompt // training.global_batch
    if schedule.warmup_steps > updates:
        what = f"is {schedule.warmup_steps}, more than the {updates} updates"
        raise places.error((*place, "schedule", "warmup_steps"), what, "write fewer")


def _check_init(recipe: Recipe, stage: str, places: Places) -> None:
    place: Place = ("stages", stage, "init")
    settings = getattr(recipe.stages, stage)
    known = checkpoints(recipe)
    first = f"pretrain_stage2_seed{recipe.stages.pretrain_stage2.seeds[0]}"
    earlier = known[: known.index(first if stage == "pretrain_stage2" else stage)]
    allowed = earlier or ("scratch",)
    if settings.init not in allowed:
        why = "which does not come before it" if settings.init in known else "not a stage"
        what = f"is '{settings.init}', {why}"
        raise places.error(place, what, suggestion(settings.init, allowed))
    if settings.training.reset_optimizer:
        return
    place = ("stages", stage, "training", "reset_optimizer")
    start = getattr(recipe.stages, settings.init, None)
    if start is None or settings.init == "pretrain_stage2":
        what = f"is false, but '{settings.init}' has no moments to continue"
        raise places.error(place, what, "write true")
    if not start.training.keep_optimizer:
        what = f"is false, but stages.{settings.init} does not publish its moments"
        cure = f"set stages.{settings.init}.training.keep_optimizer to true"
        raise places.error(place, what, cure)


def _check_lengths(recipe: Recipe, stage: str, places: Places) -> None:
    longest = recipe.model.max_position_embeddings
    settings = getattr(recipe.stages, stage)
    if isinstance(settings, Policy):
        name = "max_response_tokens"
        place: Place = ("stages", stage, name)
        length = settings.data.max_prompt_tokens + settings.max_response_tokens
        text = f"is {settings.max_response_tokens}, with the prompt {length} tokens"
    else:
        place = ("stages", stage, "data", "sequence_length")
        length = settings.data.sequence_length
        text = f"is {length}"
    if length > longest:
        what = f"{text}, more than model.max_position_embeddings {longest}"
        raise places.error(place, what, "shorten it or raise the model's")
    if not settings.data.parts:
        raise places.error(("stages", stage, "data", "parts"), "is empty", "name a part")


def _check_policy(policy: Policy, place: Place, places: Places) -> None:
    responses = policy.prompts_per_step * policy.samples_per_prompt
    batch = policy.training.global_batch
    if responses % batch:
        what = f"is {policy.prompts_per_step}: times samples_per_prompt {policy.samples_per_prompt}"
        what += f" makes {responses} responses, not a multiple of training.global_batch {batch}"
        cure = "change one of the three; global_batch counts responses"
        raise places.error((*place, "prompts_per_step"), what, cure)
