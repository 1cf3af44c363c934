"""The recipe as a graph of stages: names, kinds, settings and inputs.

The names are the same for every recipe file; only sources differ. ``build_graph`` is
what Snakemake, the command line and the audit read, so there is one graph.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from instella.recipe.imports import IMPORT, apply_imports
from instella.recipe.settings import Part, Pretrain, Recipe

OWN_ROLLOUT = "own"
SYNTHETIC = "synthetic"
"""What a mixture calls the source that the stages ``synthetic_*`` make."""


@dataclass(frozen=True)
class Stage:
    """One node: ``kind`` names the module in ``instella.stages`` that runs it.

    ``settings`` holds everything the stage may depend on, by name; ``inputs`` maps a
    role to the stage whose artifact is read.
    """

    name: str
    kind: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str]

    @property
    def is_imported(self) -> bool:
        """Published weights stand for what the stage would make."""
        return IMPORT in self.settings

    @property
    def environments(self) -> tuple[str, ...]:
        """Environments beside the kit's own that take part in making the result."""
        rollout = self.settings.get("rollout", OWN_ROLLOUT)
        return () if rollout == OWN_ROLLOUT else (rollout,)

    @property
    def trains(self) -> bool:
        """Its settings say how something is trained."""
        return any(
            item.name == "training"
            for value in self.settings.values()
            if is_dataclass(value)
            for item in fields(value)
        )


def build_graph(recipe: Recipe) -> dict[str, Stage]:
    """All stages of a recipe in an order in which they can run.

    With imports: only the stages that are then needed.
    """
    stages: dict[str, Stage] = {}

    def add(name: str, kind: str, settings: dict[str, Any], inputs: dict[str, str]) -> None:
        stages[name] = Stage(name, kind, settings, inputs)

    for name, source in recipe.sources.items():
        add(f"source_{name}", "source", {"source": source}, {})
    _add_data(recipe, add)
    _add_training(recipe, add)
    _add_evaluation(recipe, add)
    return apply_imports(recipe, stages)


def checkpoints(recipe: Recipe) -> tuple[str, ...]:
    """Names of the stages that publish a model, in order."""
    seeds = tuple(f"pretrain_stage2_seed{seed}" for seed in recipe.stages.pretrain_stage2.seeds)
    return (
        "pretrain_stage1", *seeds, "pretrain_stage2", "sft", "dpo", "math_sft1", "math_sft2",
        "grpo1", "grpo2", "grpo3",
    )  # fmt: skip


def names_synthetic(recipe: Recipe) -> bool:
    """Whether a mixture of a training stage takes the synthetic problems."""
    stages = [getattr(recipe.stages, name) for name in recipe.stages.__dataclass_fields__]
    return any(part.source == SYNTHETIC for stage in stages for part in stage.data.parts)


def _sources(parts: tuple[Part, ...]) -> dict[str, str]:
    return {f"source_{part.source}": _stage_of(part.source) for part in parts}


def _stage_of(source: str) -> str:
    return "synthetic_solution" if source == SYNTHETIC else f"source_{source}"


def _add_data(recipe: Recipe, add: Any) -> None:
    sets = recipe.evaluation.sets
    evaluation = {"sets": sets, "seed": recipe.evaluation.seed}
    add("heldout", "heldout", evaluation, _sources(tuple(item.part for item in sets.values())))
    _add_synthesis(recipe, add)
    inputs = _sources(recipe.tokenizer.parts) | {"heldout": "heldout"}
    if recipe.tokenizer.source is not None:
        inputs[f"source_{recipe.tokenizer.source}"] = f"source_{recipe.tokenizer.source}"
    common = {"ngram": recipe.evaluation.ngram, "prompt_suffix": recipe.prompt_suffix}
    add("tokenizer", "tokenizer", {"tokenizer": recipe.tokenizer, **common}, inputs)
    kinds = {
        "pretrain_stage1": "tokens_text",
        "pretrain_stage2": "tokens_text",
        "sft": "tokens_chat",
        "dpo": "tokens_preference",
        "math_sft1": "tokens_chat",
        "math_sft2": "tokens_chat",
        "grpo1": "tokens_prompts",
        "grpo2": "tokens_prompts",
        "grpo3": "tokens_prompts",
    }
    for name, kind in kinds.items():
        data = getattr(recipe.stages, name).data
        inputs = _sources(data.parts) | {"heldout": "heldout", "tokenizer": "tokenizer"}
        if name == "pretrain_stage2":
            # Also where the mixture takes the published set: the graph is one for all recipes.
            inputs |= {f"source_{SYNTHETIC}": _stage_of(SYNTHETIC)}
        add(f"tokens_{name}", kind, {"data": data, **common}, inputs)


def _add_synthesis(recipe: Recipe, add: Any) -> None:
    """Four stages; they do nothing unless a mixture names what they make."""
    synthesis = recipe.synthesis
    problems = () if synthesis is None else synthesis.problems
    is_used = synthesis is not None and names_synthetic(recipe)
    common: dict[str, Any] = {"teacher": None}
    steps = dict.fromkeys(("abstract", "program", "values", "solution"), common)
    if synthesis is not None and is_used:
        common = {"teacher": synthesis.teacher, "seed": synthesis.seed}
        steps = {name: {**common, "step": getattr(synthesis, name)} for name in steps}
        steps["abstract"]["problems"] = problems
        for name in ("abstract", "values"):
            steps[name]["ngram"] = recipe.evaluation.ngram
    inputs: dict[str, dict[str, str]] = {
        "abstract": {**_sources(problems), "heldout": "heldout"},
        "program": {"abstract": "synthetic_abstract"},
        "values": {"program": "synthetic_program", "heldout": "heldout"},
        "solution": {"values": "synthetic_values", "program": "synthetic_program"},
    }
    for name, settings in steps.items():
        add(f"synthetic_{name}", f"synthetic_{name}", settings, inputs[name])


def _add_training(recipe: Recipe, add: Any) -> None:
    stages = recipe.stages
    base = {"model": recipe.model}
    first = _without_seeds(stages.pretrain_stage1)
    inputs = {"tokens": "tokens_pretrain_stage1", "tokenizer": "tokenizer"}
    add("pretrain_stage1", "pretrain", {**base, "pretrain": first}, inputs)
    merged = {}
    for seed in stages.pretrain_stage2.seeds:
        name = f"pretrain_stage2_seed{seed}"
        second = _without_seeds(stages.pretrain_stage2)
        second = replace(second, training=replace(second.training, seed=seed))
        inputs = {
            "tokens": "tokens_pretrain_stage2",
            "tokenizer": "tokenizer",
            "init": second.init,
        }
        add(name, "pretrain", {**base, "pretrain": second}, inputs)
        merged[f"seed{seed}"] = name
    order = [f"seed{seed}" for seed in stages.pretrain_stage2.seeds]
    add("pretrain_stage2", "merge", {"order": order}, merged)
    kinds = {
        "sft": "finetune",
        "dpo": "preference",
        "math_sft1": "finetune",
        "math_sft2": "finetune",
        "grpo1": "policy",
        "grpo2": "policy",
        "grpo3": "policy",
    }
    for name, kind in kinds.items():
        settings = getattr(stages, name)
        inputs = {"tokens": f"tokens_{name}", "init": settings.init}
        add(name, kind, {kind: settings}, inputs)


def _without_seeds(pretrain: Pretrain) -> Pretrain:
    return replace(pretrain, seeds=())


def _add_evaluation(recipe: Recipe, add: Any) -> None:
    evaluation = recipe.evaluation
    inputs = {"tokens": "tokens_pretrain_stage1", "heldout": "heldout", "tokenizer": "tokenizer"}
    texts = {name: item for name, item in evaluation.sets.items() if item.kind == "text"}
    common = {"seed": evaluation.seed, "bootstrap": evaluation.bootstrap}
    add("baseline", "baseline", {"sets": texts, **common}, inputs)
    measured = {"baseline": "baseline"}
    for name in checkpoints(recipe):
        suite = evaluation.suites.get(name, ())
        samples = any(evaluation.sets[item].kind == "problem" for item in suite)
        settings = {
            "sets": {item: evaluation.sets[item] for item in suite},
            "prompt_suffix": recipe.prompt_suffix,
            "rollout": evaluation.rollout if samples else OWN_ROLLOUT,
            **common,
        }
        add(f"evaluate_{name}", "evaluate", settings, {"model": name, "heldout": "heldout"})
        measured[name] = f"evaluate_{name}"
    settings = {
        "claims": evaluation.claims,
        "checkpoints": checkpoints(recipe),
        "choices": {
            name: {"metric": item.metric, "chance": item.chance}
            for name, item in evaluation.sets.items()
            if item.kind == "choice"
        },
        **common,
    }
    add("results", "results", settings, measured)
