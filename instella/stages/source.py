"""Stage kind ``source``: fetch a pinned source and say what it is."""

from typing import Any

from instella.artifacts.job import Job
from instella.canonical import write_json
from instella.data.sources import fetch
from instella.errors import VerificationError
from instella.recipe.settings import Source

ABOUT = "source.json"


def run(job: Job) -> None:
    """Write the source's files and ``source.json``.

    ``source.json`` holds the kind, and the number, total size in bytes, and the size of each
    of the files. Licence and pins stand in the manifest's identity and not here: other words
    or another commit around the same bytes must not run again what depends on them.
    """
    source: Source = job.settings["source"]
    name = job.stage.removeprefix("source_")
    fetch(source, job.output, job.downloads, job.recipe_folder, job.report.say, name)
    sizes = {
        path.relative_to(job.output).as_posix(): path.stat().st_size
        for path in job.output.rglob("*")
        if path.is_file()
    }
    if ABOUT in sizes:
        raise VerificationError(f"{ABOUT}: the source has a file of this name; leave it out")
    about: dict[str, Any] = {
        "kind": source.kind,
        "files": sizes,
        "file_count": len(sizes),
        "bytes": sum(sizes.values()),
    }
    if source.kind == "generated":
        about["rows"] = source.size
    write_json(job.output / ABOUT, about)
