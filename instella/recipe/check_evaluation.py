"""Checks of held-out sets, suites and claims against each other."""

from instella.numerics import PORTABLE
from instella.recipe.fields import Place, Places, suggestion
from instella.recipe.graph import OWN_ROLLOUT, checkpoints
from instella.recipe.settings import Claim, HeldOutSet, Recipe

UNIGRAM = "unigram"
SEEDS = "seeds"

# Figures that ``instella.evaluation.measures`` records for each kind of set.
METRICS = {
    "text": ("loss",),
    "answer": ("loss",),
    "preference": ("accuracy", "margin"),
    "choice": ("acc_raw", "acc_per_token", "acc_per_character", "acc_uncond"),
    "problem": ("pass@1", "boxed_and_ended"),
}

# Settings of a set that only some kinds of measure read.
MEANT_FOR = {
    "max_new_tokens": ("problem",),
    "samples": ("problem",),
    "temperature": ("problem",),
    "top_p": ("problem",),
    "metric": ("choice",),
    "chance": ("choice",),
}


def check_evaluation(recipe: Recipe, places: Places) -> None:
    """Sets, suites and claims of a recipe; BadUse at the first fault."""
    for name, item in recipe.evaluation.sets.items():
        _check_set(item, ("evaluation", "sets", name), recipe, places)
    _check_suites(recipe, places)
    _check_rollout(recipe, places)
    for index, claim in enumerate(recipe.evaluation.claims):
        _check_claim(claim, ("evaluation", "claims", index), recipe, places)


def _check_set(item: HeldOutSet, place: Place, recipe: Recipe, places: Places) -> None:
    for name, kinds in MEANT_FOR.items():
        if places.written((*place, name)) and item.kind not in kinds:
            what = f"has no effect on a set of kind '{item.kind}'"
            raise places.error((*place, name), what, "remove it")
    longest = recipe.model.max_position_embeddings
    new = item.max_new_tokens if item.kind == "problem" else 0
    if item.sequence_length + new > longest:
        what = f"is {item.sequence_length}"
        what += f", with max_new_tokens {new} more than" if new else ", more than"
        what += f" model.max_position_embeddings {longest}"
        raise places.error((*place, "sequence_length"), what, "shorten it or raise the model's")


def _check_rollout(recipe: Recipe, places: Places) -> None:
    rollout = recipe.evaluation.rollout
    if rollout != OWN_ROLLOUT and recipe.numerics == PORTABLE:
        what = f"is {rollout}, which gives other bytes on other CPUs, and numerics is {PORTABLE}"
        cure = "set numerics: native-cpu, or leave it out"
        raise places.error(("evaluation", "rollout"), what, cure)


def _check_suites(recipe: Recipe, places: Places) -> None:
    known = checkpoints(recipe)
    sets = recipe.evaluation.sets
    for stage, suite in recipe.evaluation.suites.items():
        place: Place = ("evaluation", "suites", stage)
        if stage not in known:
            raise places.error(place, "is not a checkpoint", suggestion(stage, known))
        for index, name in enumerate(suite):
            if name not in sets:
                what = f"names the unknown set '{name}'"
                raise places.error((*place, index), what, suggestion(name, sets))
            if name in suite[:index]:
                raise places.error((*place, index), f"names '{name}' again", "remove one")


def _check_claim(claim: Claim, place: Place, recipe: Recipe, places: Places) -> None:
    evaluation = recipe.evaluation
    if claim.set not in evaluation.sets:
        what = f"names the unknown set '{claim.set}'"
        raise places.error((*place, "set"), what, suggestion(claim.set, evaluation.sets))
    kind = evaluation.sets[claim.set].kind
    if claim.metric not in METRICS[kind]:
        what = f"is '{claim.metric}', which a set of kind '{kind}' does not give"
        raise places.error((*place, "metric"), what, suggestion(claim.metric, METRICS[kind]))
    if claim.against == UNIGRAM and kind != "text":
        what = f"is '{UNIGRAM}', which is measured on sets of kind text only"
        raise places.error((*place, "against"), what, "name a checkpoint, or a text set")
    _check_side(claim, "stage", place, recipe, places)
    if claim.against not in (None, UNIGRAM):
        _check_side(claim, "against", place, recipe, places)
    if claim.at_least is None and claim.at_most is None and claim.interval_above is None:
        raise places.error(place, "has no bound", "give at_least, at_most or interval_above")
    if claim.at_least is not None and claim.at_most is not None and claim.at_least > claim.at_most:
        what = f"is {claim.at_least}, more than at_most {claim.at_most}"
        raise places.error((*place, "at_least"), what, "swap or mend them")


def _check_side(claim: Claim, side: str, place: Place, recipe: Recipe, places: Places) -> None:
    """The checkpoint exists and its suite holds the claim's set."""
    name = getattr(claim, side)
    known = checkpoints(recipe)
    if side == "against" and name == SEEDS:
        names = [item for item in known if item.startswith("pretrain_stage2_seed")]
    elif name in known:
        names = [name]
    else:
        what = f"names the unknown checkpoint '{name}'"
        others = (UNIGRAM, SEEDS) if side == "against" else ()
        raise places.error((*place, side), what, suggestion(name, (*known, *others)))
    for checkpoint in names:
        if claim.set not in recipe.evaluation.suites.get(checkpoint, ()):
            what = f"is '{name}', but '{checkpoint}' is not measured on '{claim.set}'"
            cure = f"add the set to evaluation.suites.{checkpoint}"
            raise places.error((*place, side), what, cure)
