"""A run with nothing to do against ``dvc status`` on the same stages and files.

    ./kit setup dvc
    .venv/bin/python -m benchmarks.nothing_to_do [--pairs N]

A finished run of `nano` is put under DVC: one stage for each of ours, with its inputs as
dependencies and its folder as output, all committed. Then ``./kit run``, which finds nothing to
do, and ``dvc status``, which finds everything up to date, take turns. Both decide by the state of
files that they looked at before, as each does by default.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import yaml

from benchmarks.harness import record
from instella.prove.copies import PROJECT, clone
from instella.prove.processes import Finished, kit, run
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe

RECIPE = "recipes/nano.yaml"
DVC = PROJECT / ".venvs" / "dvc" / "bin" / "dvc"
TIMEOUT_SECONDS = 3600.0
UP_TO_DATE = "Data and pipelines are up to date."
QUIET = {"DVC_NO_ANALYTICS": "1"}


def main() -> int:
    """Measure and record; 1 when a run takes longer than ``dvc status``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    pairs = parser.parse_args().pairs
    if not DVC.is_file():
        raise SystemExit("dvc is not there; ./kit setup dvc puts it there")
    with tempfile.TemporaryDirectory(prefix="nothing-to-do-") as temporary:
        folder = clone(Path(temporary, "project"), RECIPE)
        sound(kit(folder, "--cores", "2", timeout=TIMEOUT_SECONDS))
        put_under_dvc(folder)
        # the first of each fills caches
        ours(folder)
        theirs(folder)
        measured = [(ours(folder), theirs(folder)) for _ in range(pairs)]
    ratio = statistics.median(own.cpu / other.cpu for own, other in measured)
    wall = statistics.median(own.wall / other.wall for own, other in measured)
    lines = [
        f"- pairs: {pairs}",
        f"- ./kit run: {statistics.median(own.cpu for own, _ in measured):.2f} s of CPU time",
        f"- dvc status: {statistics.median(other.cpu for _, other in measured):.2f} s of CPU time",
        f"- median ratio: {ratio:.3f} by CPU time, {wall:.3f} by wall time (target: below 1)",
    ]
    record("Nothing to do, against dvc status", lines)
    return int(ratio >= 1)


def sound(done: Finished) -> Finished:
    """A command's result.

    Raises:
        SystemExit: it failed.
    """
    if done.code:
        raise SystemExit(done.out + done.err)
    return done


def put_under_dvc(folder: Path) -> None:
    """Write ``dvc.yaml`` from the recipe's graph and commit what is there as made by it."""
    graph = build_graph(read_recipe(folder / RECIPE))
    stages = {
        name: {
            "cmd": "true",
            "deps": sorted(f"results/nano/{source}" for source in stage.inputs.values()),
            "outs": [f"results/nano/{name}"],
        }
        for name, stage in graph.items()
    }
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}), encoding="utf-8")
    for words in (["init", "--no-scm"], ["commit", "--force"]):
        sound(run([str(DVC), *words], folder, TIMEOUT_SECONDS, QUIET))


def ours(folder: Path) -> Finished:
    """A run that has nothing to do."""
    done = sound(kit(folder, "--cores", "1", timeout=TIMEOUT_SECONDS))
    assert "Nothing to be done" in done.out + done.err, done.out + done.err
    return done


def theirs(folder: Path) -> Finished:
    """``dvc status`` of the same files."""
    done = sound(run([str(DVC), "status"], folder, TIMEOUT_SECONDS, QUIET))
    assert UP_TO_DATE in done.out, done.out
    return done


if __name__ == "__main__":
    sys.exit(main())
