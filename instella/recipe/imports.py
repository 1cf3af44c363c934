"""What imported checkpoints change in the graph.

An imported stage reads the tokenizer alone, which its vocabulary was compared with. The
checkpoints that it would have come from are left out, with all that only they need, unless
another stage still starts from them; so are their rows in the table of results, the claims
about them, and the unigram baseline when the first stage's tokens are not made.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from instella.recipe.settings import Claim, Model, Recipe

if TYPE_CHECKING:
    from instella.recipe.graph import Stage

IMPORT = "import"
RESULTS = "results"
BASELINE = "baseline"
UNIGRAM = "unigram"
SEEDS = "seeds"


def apply_imports(recipe: Recipe, stages: Mapping[str, "Stage"]) -> dict[str, "Stage"]:
    """The stages that the results lead to once imports stand for what they replace.

    Args:
        recipe: its imports name checkpoints; other names are left alone.
        stages: the graph without imports, in order.
    """
    imports = {name: item for name, item in (recipe.imports or {}).items() if name in stages}
    if not imports:
        return dict(stages)
    cut = dict(stages)
    for name, item in imports.items():
        settings = {IMPORT: item, "model": _shape(recipe.model)}
        cut[name] = replace(stages[name], settings=settings, inputs={"tokenizer": "tokenizer"})
    kept = _kept(tuple(imports), stages, cut)
    cut[RESULTS] = _results(stages[RESULTS], kept, imports)
    needed = {RESULTS} | ancestors(cut, RESULTS)
    return {name: stage for name, stage in cut.items() if name in needed}


def _shape(model: Model) -> dict[str, Any]:
    """What a checkpoint must have; its own longest sequence may be another."""
    return {k: v for k, v in asdict(model).items() if k != "max_position_embeddings"}


def _kept(
    imports: tuple[str, ...], stages: Mapping[str, "Stage"], cut: Mapping[str, "Stage"]
) -> tuple[str, ...]:
    """Checkpoints of the run, in order."""
    checkpoints: tuple[str, ...] = stages[RESULTS].settings["checkpoints"]
    left = set().union(*(ancestors(stages, name) for name in imports)) - set(imports)
    ends = [name for name in checkpoints if name not in left]
    needed = set(ends).union(*(ancestors(cut, name) for name in ends))
    return tuple(name for name in checkpoints if name in needed)


def ancestors(stages: Mapping[str, "Stage"], name: str) -> set[str]:
    """Stages that ``name`` reads from, directly or not; without itself."""
    found: set[str] = set()
    waiting = list(stages[name].inputs.values())
    while waiting:
        stage = waiting.pop()
        if stage not in found:
            found.add(stage)
            waiting += stages[stage].inputs.values()
    return found


def _results(stage: "Stage", kept: tuple[str, ...], imports: Mapping[str, Any]) -> "Stage":
    checkpoints = stage.settings["checkpoints"]
    sides = set(kept)
    if "pretrain_stage1" in kept and "pretrain_stage1" not in imports:
        sides |= {BASELINE, UNIGRAM}
    if all(name in kept for name in checkpoints if name.startswith("pretrain_stage2_seed")):
        sides.add(SEEDS)
    claims: tuple[Claim, ...] = stage.settings["claims"]
    settings = {
        **stage.settings,
        "checkpoints": kept,
        "claims": tuple(
            claim for claim in claims if {claim.stage, claim.against} - {None} <= sides
        ),
    }
    inputs = {role: source for role, source in stage.inputs.items() if role in sides}
    return replace(stage, settings=settings, inputs=inputs)
