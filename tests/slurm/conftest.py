"""One cluster for all tests of this folder, and a run that is ready for its first training."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Cluster, missing
from slurm_helpers import RUN_SECONDS, STAGE, ClusterRun, new_run

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


@pytest.fixture
def long(trained: ClusterRun, cluster: Cluster) -> Iterator[tuple[ClusterRun, str]]:
    """The run with enough steps to be disturbed in, and the content it makes undisturbed."""
    yield from _variant(trained, cluster, epochs=5)


@pytest.fixture
def longer(trained: ClusterRun, cluster: Cluster) -> Iterator[tuple[ClusterRun, str]]:
    """The run with steps for longer than SLURM takes to give a node up."""
    yield from _variant(trained, cluster, epochs=30)


@pytest.fixture
def short(trained: ClusterRun, cluster: Cluster) -> Iterator[tuple[ClusterRun, str]]:
    """The run with three steps."""
    yield from _variant(trained, cluster, max_steps=3, schedule={"kind": "constant"})


def _variant(run: ClusterRun, cluster: Cluster, **changes: Any) -> Iterator[tuple[ClusterRun, str]]:
    before = run.recipe_file.read_bytes()
    run.edit_recipe(lambda recipe: recipe["stages"][STAGE]["training"].update(changes))
    done = kit(run.folder, "--cores", "2", run.target)
    assert done.code == 0, done.err
    content = run.content()
    run.again()
    yield run, content
    run.recipe_file.write_bytes(before)
    run.set_site()
    cluster.end_jobs()
