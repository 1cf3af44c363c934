"""Stage kind ``source``: fetch a pinned source and say what it is."""

from dataclasses import fields
from typing import Any

from instella.artifacts.job import Job
from instella.canonical import write_json
from instella.data.sources import fetch
from instella.errors import VerificationError
from instella.recipe.settings import Source

ABOUT = "source.json"


def run(job: Job) -> None:
    """Write the source's files and ``source.json``.

    ``source.json`` holds the kind, the licence, every pin of the recipe, and the number,
    total size in bytes, and the size of each of the files.
    """
    source: Source = job.settings["source"]
    fetch(source, job.output, job.downloads, job.recipe_folder, job.report.say)
    sizes = {
        path.relative_to(job.output).as_posix(): path.stat().st_size
        for path in job.output.rglob("*")
        if path.is_file()
    }
    if ABOUT in sizes:
        raise VerificationError(f"{ABOUT}: the source has a file of this name; leave it out")
    about = {
        "kind": source.kind,
        "licence": source.licence,
        "pins": _pins(source),
        "files": sizes,
        "file_count": len(sizes),
        "bytes": sum(sizes.values()),
    }
    if source.kind == "generated":
        about["rows"] = source.size
    write_json(job.output / ABOUT, about)


def _pins(source: Source) -> dict[str, Any]:
    """The fields of the recipe that say what the data is, without empty ones."""
    values = {field.name: getattr(source, field.name) for field in fields(source)}
    if source.kind != "hub":
        values.pop("repository_type")
    del values["kind"], values["licence"]
    return {name: value for name, value in values.items() if value not in (None, ())}
