"""The run's table: figures of every checkpoint and the recipe's claims."""

from instella.artifacts.job import Job
from instella.canonical import write_bytes, write_json
from instella.evaluation.table import Measured, markdown, results


def run(job: Job) -> None:
    """Write ``results.json`` and ``table.md``."""
    settings = job.settings
    folders = {name: job.inputs[name] for name in settings["checkpoints"]}
    measured = Measured(
        folders, job.inputs.get("baseline"), settings["bootstrap"], settings["seed"]
    )
    values = results(measured, settings["claims"], settings["choices"])
    write_json(job.output / "results.json", values)
    write_bytes(job.output / "table.md", markdown(values).encode("utf-8"))
    missed = [claim["about"] for claim in values["claims"] if not claim["met"]]
    for about in missed:
        job.report.say(f"claim not met: {about}")
