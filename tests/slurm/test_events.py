"""What happens on clusters, to a stage of two nodes with two ranks each: the same bytes after it.

They take minutes, and two of the events happen in ``test_nano.py`` too, so they need
``INSTELLA_SOAK=1``.
"""

import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from slurm_cluster import Cluster
from slurm_helpers import (
    OPTIONS,
    RUN_SECONDS,
    ClusterRun,
    recorded_content,
    run_on,
    started_on,
    wait_for_steps,
    wait_until,
)

from instella.prove.processes import run

DATA_STAGE = "heldout"
# Less than Snakemake and the stage hold, and more than a third of that.
TOO_LITTLE_MB = 150

pytestmark = pytest.mark.skipif(
    not os.environ.get("INSTELLA_SOAK"), reason="takes minutes: INSTELLA_SOAK=1"
)


def test_a_job_whose_time_ends_goes_on_in_the_next(
    short: tuple[ClusterRun, str], cluster: Cluster
) -> None:
    """Each job has time for one step only, and no attempt of Snakemake is used up."""
    run, content = short
    run.set_site(stop_seconds=3600)
    done = run_on(cluster, run, "--retries", "0", run.target)
    assert done.code == 0, done.err + run.said()
    assert run.content() == content
    assert "resumed after step 2\n" in run.said()
    assert "Restarts=2 " in cluster.command("scontrol", "show", "job", _job_of(run))


def _job_of(run: ClusterRun) -> str:
    """Number of the job that the stage told last; Snakemake clears the log for each job."""
    return re.findall(r"4 ranks on 2 nodes of job (\d+)", run.said())[-1]


def test_preemption(long: tuple[ClusterRun, str], cluster: Cluster) -> None:
    run, content = long
    with started_on(cluster, run, "--retries", "0", run.target) as started:
        wait_for_steps(run, started)
        cluster.command(
            "sbatch", "--partition", "urgent", "--nodes", "4", "--exclusive", "--output",
            "/dev/null", "--wrap", "sleep 2",
        )  # fmt: skip
        started.wait()
    assert run.content() == content
    assert "resumed after step" in run.said()
    assert "Restarts=1 " in cluster.command("scontrol", "show", "job", _job_of(run))


def _jobs(cluster: Cluster) -> list[str]:
    return cluster.command("squeue", "--noheader", "--format", "%A").split()


def test_torchrun_starts_the_ranks(short: tuple[ClusterRun, str], cluster: Cluster) -> None:
    run, content = short
    done = run_on(cluster, run, "--retries", "0", run.target, config=["launcher=torchrun"])
    assert done.code == 0, done.err + run.said()
    assert run.content() == content
    assert "4 ranks on 2 nodes" in run.said()


def _ranks(run: ClusterRun) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            words = process.cmdline()
            is_rank = words[1:4] == ["-m", "instella", "job"] and words[-1] == "--from-srun"
            if is_rank and words[4].startswith(f"{run.folder}/"):
                found.append(process)
    return found


def test_a_rank_that_dies_ends_the_attempt(long: tuple[ClusterRun, str], cluster: Cluster) -> None:
    """The others end, and the next attempt goes on."""
    run, content = long
    with started_on(cluster, run, "--retries", "1", run.target) as started:
        wait_for_steps(run, started)
        ranks = _ranks(run)
        assert len(ranks) == 4
        ranks[-1].kill()
        text = started.wait()
    assert "Trying to restart job" in text
    assert run.content() == content


def test_scancel(long: tuple[ClusterRun, str], cluster: Cluster) -> None:
    """A cancelled job is not requeued by itself; Snakemake's next attempt goes on from it."""
    run, content = long
    with started_on(cluster, run, "--retries", "1", run.target) as started:
        wait_for_steps(run, started)
        cluster.command("scancel", *_jobs(cluster))
        text = started.wait()
    assert "Trying to restart job" in text
    assert run.content() == content
    assert "resumed after step" in run.said()


def test_snakemake_killed(long: tuple[ClusterRun, str], cluster: Cluster) -> None:
    run, content = long
    with started_on(cluster, run, run.target) as started:
        wait_for_steps(run, started)
    assert len(_jobs(cluster)) == 1
    done = run_on(cluster, run, run.target)
    assert done.code == 0, done.err
    assert "is left from an earlier run; ended, it goes on in a new job" in done.err
    assert run.content() == content
    assert "resumed after step" in run.said()


def test_out_of_memory(trained: ClusterRun, cluster: Cluster) -> None:
    """The second or third attempt books enough."""
    trained.forget(DATA_STAGE)
    memory = f"{DATA_STAGE}:mem_mb=attempt*{TOO_LITTLE_MB}"
    target = f"results/nano/{DATA_STAGE}/manifest.json"
    done = run_on(cluster, trained, target, "--retries", "2", "--set-resources", memory)
    assert done.code == 0, done.err
    assert "Trying to restart job" in done.err
    assert trained.manifest(DATA_STAGE).content == recorded_content(DATA_STAGE)


SLOW = """\
bindfs -o attr_timeout=$1,entry_timeout=$1,negative_timeout=$1 "$PWD" "$PWD" || exit 70
cd "$PWD"
shift
"$@"
code=$?
cd /
umount "$OLDPWD"
exit $code
"""


def test_a_slow_file_system(trained: ClusterRun, cluster: Cluster) -> None:
    """Where Snakemake runs, what jobs write is seen six seconds late."""
    trained.forget(DATA_STAGE)
    target = f"results/nano/{DATA_STAGE}/manifest.json"
    command = ["./kit", "run", *OPTIONS, target, "--retries", "0"]
    words = ["unshare", "--mount", "sh", "-c", SLOW, "sh", "6", *command]
    done = run(words, trained.folder, RUN_SECONDS, cluster.environment)
    if done.code == 70:
        pytest.skip("bindfs is not there, or this user may not mount: apt install bindfs")
    assert done.code == 0, done.err
    assert trained.manifest(DATA_STAGE).content == recorded_content(DATA_STAGE)


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_node_is_lost(longer: tuple[ClusterRun, str], cluster: Cluster, node: str) -> None:
    """n1 holds the stage's own process and rank 0, n2 two more ranks, which live on a while."""
    run, content = longer
    with started_on(cluster, run, "--retries", "0", run.target) as started:
        wait_for_steps(run, started)
        cluster.kill_node(node)
        wait_until(lambda: f"{node} down" in " ".join(cluster.states()), "lost node", started)
        started.wait()
    # Not before: a node that comes back with the job's old processes is drained.
    cluster.start_node(node)
    assert run.content() == content
    assert "resumed after step" in run.said()


def test_a_full_disk(long: tuple[ClusterRun, str], cluster: Cluster, tmp_path: Path) -> None:
    """One line, and after space is made the run goes on."""
    run, content = long
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small file system")
    try:
        subprocess.run(["cp", "-a", str(run.store), str(place / "store")], check=True)
        free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        ballast = place / "ballast"
        ballast.write_bytes(bytes(free - 300_000))
        words, config = ("--retries", "0", run.target), [f"store={place}/store"]
        done = run_on(cluster, run, *words, config=config)
        assert done.code != 0
        assert "the disk is full; free some space and run it again" in run.said(), run.said()
        ballast.unlink()
        done = run_on(cluster, run, *words, config=config)
        assert done.code == 0, done.err
        assert run.content() == content
    finally:
        cluster.end_jobs()
        subprocess.run(["umount", str(place)], check=True)
