"""What the measurements share: facts of the machine, and where results are written down.

Runs of the recipe in copies of the project come from ``instella.prove``.
"""

import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from instella.prove.copies import PROJECT


def busy_seconds(journal: Mapping[str, Iterable[Mapping[str, Any]]]) -> float:
    """Seconds in which at least one stage was at work; starts are known to the second."""
    spans = sorted(
        (start, start + entry["seconds"])
        for entries in journal.values()
        for entry in entries
        for start in [datetime.fromisoformat(entry["started"]).timestamp()]
    )
    total, reached = 0.0, float("-inf")
    for begin, end in spans:
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def machine() -> dict[str, str]:
    """CPU model, cores, memory and the versions that matter for time."""
    from importlib.metadata import version

    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"(?m)^model name\s*:\s*(.*)$", cpuinfo)
    return {
        "CPU": model.group(1) if model else "unknown",
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "Python": ".".join(map(str, sys.version_info[:3])),
        "torch": version("torch"),
        "Snakemake": version("snakemake"),
    }


def record(title: str, lines: Iterable[str]) -> None:
    """Append a dated section to ``benchmarks/results.md`` and print it."""
    facts = ", ".join(f"{name} {value}" for name, value in machine().items())
    day = time.strftime("%Y-%m-%d", time.gmtime())
    text = "\n".join([f"## {title}, {day}", "", facts, "", *lines, ""])
    path = PROJECT / "benchmarks" / "results.md"
    head = "" if path.exists() else "# Measurements\n\n"
    with path.open("a", encoding="utf-8") as file:
        file.write(head + text + "\n")
    print(text)
