"""Nano trains on the cluster and is disturbed there: the recorded root.

Data and measurements are made on this machine, which takes less time; with ``INSTELLA_SOAK=1``
the cluster makes all. Either way a run goes on where another placement began it.
"""

import os
import re
from pathlib import Path

import pytest
from slurm_cluster import Cluster
from slurm_helpers import STAGE, ClusterRun, Started, new_run, started_on, wait_until

from instella.prove.copies import PROJECT
from instella.prove.processes import kit
from instella.prove.recorded import first_difference, read_recorded, recorded_file

WHOLE_SECONDS = 1500.0
SEEDS = [f"pretrain_stage2_seed{seed}" for seed in (5796, 6198, 8915)]
SOAK = bool(os.environ.get("INSTELLA_SOAK"))


@pytest.mark.timeout(2 * WHOLE_SECONDS)
def test_nano_has_the_recorded_root(cluster: Cluster, tmp_path: Path) -> None:
    """The first stage trains on two nodes of two ranks, and an urgent job takes them away from
    it; Snakemake is killed while the next ones train, and started again; a job of fine-tuning is
    cancelled; the time of a GRPO stage ends after its first step."""
    run = new_run(tmp_path / "kit")
    targets = []
    if not SOAK:
        targets = [_manifest("grpo3")]
        _run_here(run, *(_manifest(name) for name in run.graph() if name.startswith("tokens_")))
    run.set_site(stop_seconds=900)
    profile = run.folder / "workflow" / "profiles" / "short" / "config.yaml"
    with profile.open("a", encoding="utf-8") as file:
        file.write("  grpo1:\n    runtime: 15\n")
    with started_on(cluster, run, *targets) as started:
        _wait_for_ranks(run, started, STAGE)
        cluster.command(
            "sbatch", "--partition", "urgent", "--nodes", "4", "--exclusive", "--output",
            "/dev/null", "--wrap", "true",
        )  # fmt: skip
        _wait_for_ranks(run, started, *SEEDS)
    with started_on(cluster, run, *targets) as started:
        cluster.command("scancel", _wait_for_ranks(run, started, "sft"))
        text = started.wait(WHOLE_SECONDS)
    assert "is left from an earlier run; ended, it goes on in a new job" in text
    assert "Trying to restart job" in text
    _run_here(run)
    contents = {stage: manifest.content for stage, manifest in run.manifests().items()}
    recorded = read_recorded(recorded_file(PROJECT / "recipes" / "nano.yaml"))
    assert first_difference(recorded.contents, contents) is None
    restarts = cluster.command("scontrol", "show", "job", "--oneliner")
    assert restarts.count("Restarts=1 ") == 2, restarts
    grpo = (run.results / "logs" / "grpo1.log").read_text(encoding="utf-8")
    assert "grpo1: resumed after step" in grpo
    outcomes = [entry["outcome"] for entries in run.journal().values() for entry in entries]
    assert outcomes.count("computed") == len(contents)


def _wait_for_ranks(run: ClusterRun, started: Started, *stages: str) -> str:
    """Wait until one of the stages starts its ranks; the number of its job."""
    found: list[str] = []

    def look() -> bool:
        for stage in stages:
            log = run.results / "logs" / f"{stage}.log"
            said = log.read_text(encoding="utf-8") if log.is_file() else ""
            found.extend(re.findall(r"ranks on \d nodes of job (\d+)", said))
        return bool(found)

    wait_until(look, f"ranks of {' or '.join(stages)}", started, WHOLE_SECONDS)
    return found[-1]


def _manifest(stage: str) -> str:
    return f"results/nano/{stage}/manifest.json"


def _run_here(run: ClusterRun, *targets: str) -> None:
    """Make targets, or all that is missing, on this machine."""
    done = kit(run.folder, "--cores", "2", *targets, timeout=WHOLE_SECONDS)
    assert done.code == 0, done.err
