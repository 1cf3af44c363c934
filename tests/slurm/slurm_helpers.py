"""Runs on the test cluster: started, waited for, and looked at."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml
from slurm_cluster import Cluster

from instella.prove.copies import PROJECT, clone, lend_python
from instella.prove.finished import RecipeRun
from instella.prove.processes import Finished, kill_tree, kit, start
from instella.prove.recorded import read_recorded, recorded_file

NANO = "recipes/nano.yaml"
STAGE = "pretrain_stage1"
OPTIONS = (
    "--profile", "workflow/profiles/slurm", "--workflow-profile", "workflow/profiles/short",
    "--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "10",
)  # fmt: skip
RUN_SECONDS = 600.0
# Two nodes of two ranks train the first stage. No identity holds the hardware.
HARDWARE = {
    "accelerator": "none", "accelerators_per_node": 1, "memory_bytes": 1e9, "peak_flops": 1e12,
    "power_watts": 1, "nodes": {STAGE: 2},
}  # fmt: skip


class ClusterRun(RecipeRun):
    """A clone of the project whose stages run on the test cluster."""

    @property
    def target(self) -> str:
        """The file that Snakemake is asked for when a test is about one stage."""
        return f"results/{self.recipe}/{STAGE}/manifest.json"

    @property
    def log(self) -> Path:
        return self.results / "logs" / f"{STAGE}.log"

    def said(self) -> str:
        """What the stage has told so far."""
        return self.log.read_text(encoding="utf-8") if self.log.is_file() else ""

    def content(self) -> str:
        return self.manifest(STAGE).content

    def set_site(self, **values: Any) -> None:
        """Write the site file; the test cluster's partitions end jobs after an hour."""
        path = self.folder / "workflow" / "profiles" / "slurm" / "site.yaml"
        path.write_text(yaml.safe_dump({"max_minutes": 60, **values}), encoding="utf-8")

    def edit_recipe(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """Load the recipe, let ``change`` alter it in place, and write it anew."""
        recipe = yaml.safe_load(self.recipe_file.read_text(encoding="utf-8"))
        change(recipe)
        self.recipe_file.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")

    def again(self) -> None:
        """Forget the stage and what it told."""
        self.forget(STAGE)
        self.log.unlink(missing_ok=True)


def new_run(folder: Path, recipe: str = "nano") -> ClusterRun:
    """A clone in which the recipe's first training stage takes two nodes."""
    run = ClusterRun(clone(folder, f"recipes/{recipe}.yaml"), recipe)
    # Snakemake with its executor, as ./kit test has set it up.
    own, lent = PROJECT / ".venvs" / "slurm", folder / ".venvs" / "slurm"
    lend_python(lent, own / "bin" / "python")
    shutil.copy(own / "slurm.stamp", lent)
    run.edit_recipe(lambda recipe: recipe.update(hardware=HARDWARE))
    run.set_site()
    return run


def recorded_content(stage: str) -> str:
    """What a stage of nano makes, as it is recorded."""
    return read_recorded(recorded_file(PROJECT / NANO)).contents[stage]


def run_on(
    cluster: Cluster, run: ClusterRun, *options: str, config: Sequence[str] = ()
) -> Finished:
    """``./kit run`` with the profile, two ranks a node, to its end."""
    words = (*OPTIONS, *options, "--config", "ranks=2", *config)
    return kit(run.folder, *words, timeout=RUN_SECONDS, extra=cluster.environment)


@dataclass
class Started:
    """A ``./kit run`` at work, and what it prints."""

    process: "subprocess.Popen[bytes]"
    out: IO[bytes]

    def text(self) -> str:
        self.out.seek(0)
        return self.out.read().decode("utf-8", "replace")

    def wait(self, seconds: float = RUN_SECONDS) -> str:
        """Wait for its good end; what it printed."""
        code = self.process.wait(seconds)
        text = self.text()
        assert code == 0, text
        return text


@contextmanager
def started_on(cluster: Cluster, run: ClusterRun, *options: str) -> Iterator[Started]:
    """``./kit run`` as in ``run_on``, in the background; killed at the end if it still runs."""
    words = ["./kit", "run", *OPTIONS, *options, "--config", "ranks=2"]
    with tempfile.TemporaryFile("w+b") as out:
        process = start(words, run.folder, out, out, cluster.environment)
        try:
            yield Started(process, out)
        finally:
            kill_tree(process)


def wait_until(
    look: Callable[[], object], what: str, started: Started | None = None, seconds: float = 240.0
) -> None:
    """Until ``look`` finds something; the run has to be at work all the time."""
    deadline = time.monotonic() + seconds
    while not look():
        if started is not None and started.process.poll() is not None:
            sys.exit(f"the run ended before {what}: {started.text()}")
        assert time.monotonic() < deadline, f"no {what} within {seconds} s"
        time.sleep(0.1)


def wait_for_steps(run: ClusterRun, started: Started) -> None:
    """Until the stage has made a step."""
    wait_until(lambda: f"{STAGE}: step " in run.said(), "step of the stage", started)
