"""One cluster for all tests of this folder, and a run that is ready for its first training."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Cluster, missing
from slurm_helpers import RUN_SECONDS, ClusterRun, new_run

from instella.prove.processes import kit


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Four idle nodes; in a short path, since the names of sockets are limited."""
    lacking = missing()
    if lacking is not None:
        pytest.skip(f"{lacking} is not there: apt install slurm-wlm munge")
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as folder:
        made = Cluster(Path(folder))
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> ClusterRun:
    """A run up to the first training stage, made on this machine alone."""
    run = new_run(tmp_path_factory.mktemp("trained") / "kit")
    done = kit(run.folder, "--cores", "2", run.target, timeout=RUN_SECONDS)
    assert done.code == 0, done.err
    return run
