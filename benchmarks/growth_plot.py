"""Draws ``docs/growth.svg`` from rows on standard input; run by ``benchmarks.growth``.

It runs in ``.venvs/plots``, which has matplotlib and nothing of the kit.
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
# the same figures give the same file
matplotlib.rcParams["svg.hashsalt"] = "growth"
from matplotlib import pyplot  # noqa: E402

TARGET = Path(__file__).parents[1] / "docs" / "growth.svg"


def main() -> None:
    """Two panels, CPU time and memory, each over its first value, both axes logarithmic."""
    series: dict[str, list[tuple[int, float, float]]] = {}
    for name, times, cpu, memory in json.load(sys.stdin):
        series.setdefault(name, []).append((times, cpu, memory))
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4.5), sharex=True)
    for panel, column, title in zip(panels, (1, 2), ("CPU time", "memory"), strict=True):
        for name, rows in series.items():
            values = [row[column] / rows[0][column] for row in rows]
            panel.plot([row[0] for row in rows], values, marker="o", label=name)
        panel.plot([1, 100], [1, 100], "k--", linewidth=1, label="linear")
        panel.set(xscale="log", yscale="log", title=title,
                  xlabel="times as much", ylabel="times as much as at 1")  # fmt: skip
    panels[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(TARGET, metadata={"Date": None})


if __name__ == "__main__":
    main()
