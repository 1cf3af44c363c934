"""The journal: when, where and how long a stage ran. Volatile facts live only here."""

import os
import platform
import re
import resource
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from instella.canonical import json_bytes

FOLDER = "journal"


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
