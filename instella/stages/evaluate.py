"""Measure one checkpoint on its suite of held-out sets."""

from instella.artifacts.job import Job
from instella.data.tokenizer import load
from instella.evaluation.likelihood import ROWS_PER_BATCH
from instella.evaluation.measures import MEASURES, Subject
from instella.evaluation.records import read_jsonl, write_scores
from instella.network.folder import load_folder
from instella.network.known_answer import check_network


def run(job: Job) -> None:
    """Write the records of each set and ``scores.json``."""
    network = load_folder(job.inputs["model"], job.numerics).eval()
    for length in sorted({item.sequence_length for item in job.settings["sets"].values()}):
        check_network(network, ROWS_PER_BATCH * length)
    encoder = load(job.inputs["model"])
    measured = {}
    for number, (name, settings) in enumerate(job.settings["sets"].items(), 1):
        items = read_jsonl(job.inputs["heldout"] / f"{name}.jsonl")
        subject = Subject(
            network, encoder, settings, job.settings["seed"], job.settings["prompt_suffix"]
        )
        measured[name] = MEASURES[settings.kind](subject, items)
        job.report.say(f"measured {name}, {len(measured[name])} items")
        job.report.step(number, len(job.settings["sets"]))
    write_scores(job.output, measured, job.settings["bootstrap"], job.settings["seed"])
