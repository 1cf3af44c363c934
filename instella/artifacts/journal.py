"""The journal: when, where and how long a stage ran. Volatile facts live only here."""

import os
import platform
import re
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from instella.artifacts import notes
from instella.artifacts.store import plain_bytes
from instella.canonical import json_bytes, parse_json
from instella.errors import VerificationError

FOLDER = "journal"
# A stage that has begun and not come to its end: ``<stage>.running`` holds its identity key.
RUNNING = ".running"


def append(results: Path, stage: str, entry: Mapping[str, Any]) -> None:
    """Append one line to ``journal/<stage>.jsonl`` of a results folder.

    A line cut by a crash is ended first, so it never swallows the next one.
    """
    path = results / FOLDER / f"{stage}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        size = file.seek(0, os.SEEK_END)
        cut = False
        if size:
            file.seek(size - 1)
            cut = file.read(1) != b"\n"
        file.write((b"\n" if cut else b"") + json_bytes(dict(entry)))


def running_file(results: Path, stage: str) -> Path:
    """The file that tells which identity a stage of a results folder works on, or did."""
    return results / FOLDER / f"{stage}{RUNNING}"


def notes_folder(results: Path, key: str) -> Path:
    """Where lies in a results folder what an execution of an identity told beside its artifact."""
    return results / FOLDER / notes.FOLDER / key


def running_keys(results: Path) -> dict[str, str]:
    """Stage to identity key of what has begun in a results folder and not come to its end."""
    return {
        stage: data.decode("ascii", "replace").strip() for stage, data in _read(results, RUNNING)
    }


def last_keys(results: Path) -> dict[str, str]:
    """Stage to identity key of its last line in a results folder; cut lines do not count."""
    found = {}
    for stage, data in _read(results, ".jsonl"):
        for line in reversed(data.splitlines()):
            with suppress(VerificationError, KeyError, TypeError):
                found[stage] = str(parse_json(line, stage)["identity"])
                break
    return found


def _read(results: Path, suffix: str) -> Iterator[tuple[str, bytes]]:
    """Stage and bytes of each file of a kind; what goes away meanwhile is left out.

    Raises:
        VerificationError: a pipe or a folder has such a name.
    """
    with suppress(FileNotFoundError):
        for name in sorted(os.listdir(results / FOLDER)):
            if name.endswith(suffix) and not name.startswith("."):
                with suppress(FileNotFoundError):
                    yield name.removesuffix(suffix), plain_bytes(results / FOLDER / name)


def started_at() -> str:
    """The time now, UTC, ISO 8601 to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def host_facts() -> dict[str, Any]:
    """Host, CPU, cores, versions of what is loaded, and peak memory in bytes."""
    usage = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    torch = sys.modules.get("torch")
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "libc": os.confstr("CS_GNU_LIBC_VERSION"),
        "torch": None if torch is None else str(torch.__version__),
        # Linux counts in KiB; the larger of this process and its largest child.
        "peak_rss": max(resource.getrusage(who).ru_maxrss for who in usage) * 1024,
    }


def _cpu_model() -> str | None:
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return None
    found = re.search(r"^model name\s*:\s*(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1) if found else None
