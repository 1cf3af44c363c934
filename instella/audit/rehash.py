"""Rehashes many files in threads; SHA-256 leaves Python's lock while it works."""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from instella.artifacts.manifest import Entry
from instella.artifacts.store import examine_file


class Rehash:
    """Reads files with a number of threads, the largest first, and counts what it read.

    A file is read through one buffer, so memory does not grow with its size.

    Args:
        jobs: threads; one for each core of this process without it.

    Attributes:
        files, size: files and bytes examined so far, as their entries tell.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self.files = 0
        self.size = 0

    def __call__(self, files: Mapping[Path, Entry]) -> dict[Path, str]:
        """The bad files, each with what was found in its place, in the order given."""
        ordered = sorted(files, key=lambda path: files[path].size, reverse=True)
        with ThreadPoolExecutor(max_workers=self._jobs) as pool:
            texts = pool.map(_examine, ordered, (files[path] for path in ordered))
            found = dict(zip(ordered, texts, strict=True))
        self.files += len(files)
        self.size += sum(entry.size for entry in files.values())
        return {path: text for path in files if (text := found[path]) is not None}


def _examine(path: Path, entry: Entry) -> str | None:
    try:
        return examine_file(path, entry)
    except OSError as error:
        return f"a file that cannot be read ({error.strerror})"
