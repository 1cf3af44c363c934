"""Runs whose SLURM loses control: it forgets their jobs, or gives no answer for a while.

The bounds of ``instella/cluster/waiting.py`` are minutes and more; the copy of the project that
runs here has them shortened. They need ``INSTELLA_SOAK=1``.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest
from slurm_cluster import Cluster
from slurm_helpers import ClusterRun, Started, run_on, started_on, wait_for_steps, wait_until

from instella.prove.copies import replace_in

SHORT_SECONDS = 40.0
# The executor's sleep and its questions come on top of the bound, and this machine's other work.
END_SECONDS = 240.0

pytestmark = pytest.mark.skipif(
    not os.environ.get("INSTELLA_SOAK"), reason="takes minutes: INSTELLA_SOAK=1"
)


@contextmanager
def _bound(run: ClusterRun, name: str) -> Iterator[None]:
    """The run's copy with one bound of SHORT_SECONDS."""
    path = run.folder / "instella" / "cluster" / "waiting.py"
    before = path.read_bytes()
    replace_in(path, rf"(?m)^{name} = [0-9.]+$", f"{name} = {SHORT_SECONDS}")
    try:
        yield
    finally:
        path.write_bytes(before)


@contextmanager
def _paused(started: Started) -> Iterator[None]:
    """All processes of the run stopped, as on a head node that hangs."""
    root = psutil.Process(started.process.pid)
    tree = [root, *root.children(recursive=True)]
    for process in tree:
        process.suspend()
    try:
        yield
    finally:
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def _one_line(started: Started) -> str:
    """The only error of a run that ends by itself."""
    assert started.process.wait(END_SECONDS) == 1, started.text()
    text = started.text()
    lines = re.findall(r"^Error: .*$", text, re.MULTILINE)
    assert len(lines) == 1, text
    assert "Traceback" not in text
    return lines[0]


FORGOTTEN = (
    r"Error: job \d+ is forgotten for [12] min, and Snakemake waits for it: this run ends; start it "
    "again, and it goes on from what is there"
)


def test_a_running_job_that_slurm_loses(long: tuple[ClusterRun, str], cluster: Cluster) -> None:
    """SLURM kills what runs on its nodes and is unknown to it; the next run goes on."""
    run, content = long
    with _bound(run, "GONE_SECONDS"), started_on(cluster, run, run.target) as started:
        wait_for_steps(run, started)
        cluster.lose_state()
        assert re.fullmatch(FORGOTTEN, _one_line(started))
    done = run_on(cluster, run, run.target)
    assert done.code == 0, done.err
    assert run.content() == content


def test_a_job_that_ends_unseen(long: tuple[ClusterRun, str], cluster: Cluster) -> None:
    """As with a MinJobAge shorter than a pause of Snakemake; the result is there all the same."""
    run, content = long
    with _bound(run, "GONE_SECONDS"), started_on(cluster, run, run.target) as started:
        wait_for_steps(run, started)
        with _paused(started):
            wait_until(lambda: "computed, " in run.said(), "end of the stage")
            cluster.wait_for_idle()
            cluster.lose_state()
            cluster.wait_for_idle()
        assert re.fullmatch(FORGOTTEN, _one_line(started))
    done = run_on(cluster, run, run.target)
    assert done.code == 0, done.err
    assert run.content() == content


def test_slurm_gives_no_answer_for_a_while(long: tuple[ClusterRun, str], cluster: Cluster) -> None:
    """Snakemake's executor drops jobs of whose state it gets no answer, and has to get them back."""
    run, content = long
    vain = "Falling back to 'sacct' for status queries (MinJobAge=None"
    options = ("--slurm-status-attempts", "1", "--retries", "0", run.target)
    with started_on(cluster, run, *options) as started:
        wait_for_steps(run, started)
        cluster.kill_controller()
        # The second time it asks for jobs that it had no answer about the first time.
        wait_until(lambda: started.text().count(vain) > 1, "second vain question", started)
        cluster.start_controller()
        started.wait()
    assert run.content() == content


def test_slurm_gives_no_answer_any_more(long: tuple[ClusterRun, str], cluster: Cluster) -> None:
    run, content = long
    with _bound(run, "SILENT_SECONDS"), started_on(cluster, run, run.target) as started:
        wait_for_steps(run, started)
        cluster.kill_controller()
        line = _one_line(started)
    assert re.fullmatch(r"Error: squeue .*; no answer for [12] min, so this run ends", line), line
    done = run_on(cluster, run, run.target)
    assert done.code != 0 and "Error: squeue" in done.err, done.err
    cluster.start_controller()
    done = run_on(cluster, run, run.target)
    assert done.code == 0, done.err
    assert run.content() == content
