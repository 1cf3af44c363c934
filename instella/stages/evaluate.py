"""Measure one checkpoint on its suite of held-out sets."""

from instella.artifacts.job import Job
from instella.data.tokenizer import Encoder, load
from instella.engines.elsewhere import python_of
from instella.engines.vllm.sampled import ENVIRONMENT, VllmSampler
from instella.errors import BadUse
from instella.evaluation.likelihood import ROWS_PER_BATCH
from instella.evaluation.measures import MEASURES, Sampler, Subject
from instella.evaluation.records import read_items, write_scores
from instella.network.folder import load_folder
from instella.network.known_answer import check_network
from instella.recipe.graph import OWN_ROLLOUT


def run(job: Job) -> None:
    """Write the records of each set and ``scores.json``.

    Raises:
        VerificationError: a set without an item, or a machine with other bits.
        BadUse: a set whose every item is dropped, or vLLM is wanted and not set up.
        KitError: a network that has diverged, or vLLM fails.
    """
    encoder = load(job.inputs["model"])
    sampler = _sampler(job, encoder)
    network = load_folder(job.inputs["model"], job.numerics).eval()
    for length in sorted({item.sequence_length for item in job.settings["sets"].values()}):
        check_network(network, ROWS_PER_BATCH * length)
    measured = {}
    for number, (name, settings) in enumerate(job.settings["sets"].items(), 1):
        items = read_items(job.inputs["heldout"], name)
        subject = Subject(
            network, encoder, settings, job.settings["seed"], job.settings["prompt_suffix"], sampler
        )
        records = measured[name] = MEASURES[settings.kind](subject, items)
        if not records:
            raise BadUse(
                f"held-out set {name}: none of its {len(items)} items fits in sequence_length "
                f"{settings.sequence_length}; raise it in evaluation.sets.{name}"
            )
        job.report.say(f"measured {name}, {len(records)} of {len(items)} items")
        job.report.step(number, len(job.settings["sets"]))
    write_scores(job.output, measured, job.settings["bootstrap"], job.settings["seed"])


def _sampler(job: Job, encoder: Encoder) -> Sampler | None:
    if job.settings["rollout"] == OWN_ROLLOUT:
        return None
    return VllmSampler(job.inputs["model"], encoder, python_of(ENVIRONMENT))
