"""How a job of any stage gets back into the queue, and how a wait without end is ended."""

import sys
from pathlib import Path

import pytest
import yaml
from slurm_cluster import Cluster
from slurm_helpers import wait_until

from instella.cluster import waiting
from instella.cluster.site import Site
from instella.cluster.waiting import GONE, HELD, UNFIT, WAITING, Watch, kind_of
from instella.prove.copies import PROJECT

PROFILE = PROJECT / "workflow" / "profiles" / "slurm" / "config.yaml"


def _submit(cluster: Cluster, folder: Path, command: str, *options: str) -> str:
    words = ("--parsable", "--chdir", str(PROJECT), "--output", str(folder / "out"))
    return cluster.command("sbatch", *words, *options, "--wrap", command)


def _state(cluster: Cluster, job: str) -> str:
    return cluster.command("squeue", "--noheader", "--states", "all", "--jobs", job, "-o", "%T")


def _restarts(cluster: Cluster, job: str) -> int:
    text = cluster.command("scontrol", "show", "job", "--oneliner", job)
    return int(text.split("Restarts=")[1].split()[0])


def test_a_preempted_job_that_fails_of_it_is_run_again(cluster: Cluster, tmp_path: Path) -> None:
    """As any job of the profile whose stage does not listen to SLURM's warning."""
    precommand = yaml.safe_load(PROFILE.read_text(encoding="utf-8"))["precommand"]
    # The shell that submits takes the backslash away.
    precommand = precommand.replace("\\$", "$")
    began = tmp_path / "began"
    step = f"srun -n1 sh -c 'echo >>{began}; test -e {began}.2 || sleep 300'"
    job = _submit(cluster, tmp_path, f"{precommand} && {step}", "--requeue")
    wait_until(began.exists, "step of the job")
    cluster.command(
        "sbatch", "--partition", "urgent", "--nodes", "4", "--exclusive", "--output", "/dev/null",
        "--wrap", f"touch {began}.2",
    )  # fmt: skip
    wait_until(lambda: _state(cluster, job) in ("COMPLETED", "FAILED"), "end of the job")
    assert _state(cluster, job) == "COMPLETED", (tmp_path / "out").read_text()
    assert _restarts(cluster, job) == 1
    assert len(began.read_text().splitlines()) == 2
    cluster.wait_for_idle()


UNITS = """\
import sys, time
from pathlib import Path
from instella.artifacts.job import Job
from instella.cluster import allocation, keeping
from instella.progress import Reporter

def work(job):
    units = job.scratch / "units"
    units.mkdir(exist_ok=True)
    made = len(list(units.iterdir()))
    (units / f"{made:06d}.json").write_text("{}")
    if made < 2:
        time.sleep(300)

place = Path(sys.argv[1])
job = Job("tokens", {}, {}, place, place, place, place, "portable-x86", 1, Reporter("tokens"))
keeping.in_jobs(work, allocation.current(), 3600)(job)
"""


def test_a_stage_that_keeps_units_goes_on_in_the_next_job(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text(UNITS, encoding="utf-8")
    command = f"PYTHONPATH={PROJECT} {sys.executable} {script} {tmp_path}"
    job = _submit(cluster, tmp_path, command, "--requeue", "--time", "10")
    wait_until(lambda: _state(cluster, job) in ("COMPLETED", "FAILED"), "end of the job")
    assert _state(cluster, job) == "COMPLETED", (tmp_path / "out").read_text()
    assert _restarts(cluster, job) == 2


@pytest.mark.parametrize(
    ("state", "reason", "kind"),
    [
        ("RUNNING", "None", None),
        ("PENDING", "Resources", WAITING),
        ("PENDING", "Priority", WAITING),
        ("PENDING", "JobHeldUser", WAITING),
        ("PENDING", "PartitionTimeLimit", UNFIT),
        ("PENDING", "QOSMaxWallDurationPerJobLimit", UNFIT),
        ("PENDING", "QOSMaxJobsPerUserLimit", WAITING),
        ("PENDING", "launch failed requeued held", HELD),
        ("COMPLETED", "None", GONE),
        ("PREEMPTED", "None", GONE),
        (None, "", GONE),
    ],
)
def test_what_a_job_waits_for(state: str | None, reason: str, kind: str | None) -> None:
    assert kind_of(state, reason) == kind


class Watched:
    """A watch over one job, whose clock a test sets."""

    def __init__(self, job: str, site: Site) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.ends: list[str] = []
        self._watch = Watch(
            lambda: [job], site, self.said.append, self.ends.append, lambda: self.now
        )

    def look(self, moment: float) -> None:
        self.now = moment
        self._watch.look()


@pytest.fixture
def at_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, reached by this process."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    return cluster


def test_a_job_that_can_never_start_is_cancelled(at_cluster: Cluster, tmp_path: Path) -> None:
    job = _submit(at_cluster, tmp_path, "true", "--time", "120")
    wait_until(lambda: "PartitionTimeLimit" in _reason(at_cluster, job), "reason")
    watched = Watched(job, Site())
    watched.look(0)
    watched.look(waiting.UNFIT_SECONDS - 1)
    assert watched.said == [] and _state(at_cluster, job) == "PENDING"
    watched.look(waiting.UNFIT_SECONDS)
    assert _state(at_cluster, job) == "CANCELLED"
    assert watched.said == [
        f"job {job} is pending for 1 min (PartitionTimeLimit): cancelled; see scontrol show job"
    ]


def _reason(cluster: Cluster, job: str) -> str:
    return cluster.command("squeue", "--noheader", "--jobs", job, "-o", "%r")


def test_the_wait_in_the_queue_has_a_bound(at_cluster: Cluster, tmp_path: Path) -> None:
    job = _submit(at_cluster, tmp_path, "true", "--begin", "now+1hour")
    watched = Watched(job, Site(queue_minutes=30))
    watched.look(0)
    watched.look(1799)
    assert watched.said == []
    watched.look(1800)
    assert _state(at_cluster, job) == "CANCELLED"
    assert watched.said[0].endswith("cancelled; raise queue_minutes in the site file")


def test_a_job_held_after_a_lost_node_is_released(at_cluster: Cluster, tmp_path: Path) -> None:
    job = _submit(at_cluster, tmp_path, "sleep 300", "--requeue")
    wait_until(lambda: _state(at_cluster, job) == "RUNNING", "start")
    at_cluster.command("scontrol", "requeuehold", job)
    wait_until(lambda: _state(at_cluster, job) == "PENDING", "hold")
    watched = Watched(job, Site())
    watched.look(0)
    watched.look(waiting.HELD_SECONDS)
    assert watched.said[0].endswith("released"), watched.said
    wait_until(lambda: _state(at_cluster, job) == "RUNNING", "second start")
    at_cluster.end_jobs()


def test_a_job_that_slurm_has_forgotten_ends_the_run(at_cluster: Cluster) -> None:
    watched = Watched("99999999", Site())
    watched.look(0)
    watched.look(waiting.GONE_SECONDS - 1)
    assert watched.ends == []
    watched.look(waiting.GONE_SECONDS)
    assert watched.ends == [
        "job 99999999 is forgotten for 15 min, and Snakemake waits for it: this run ends; start it "
        "again, and it goes on from what is there"
    ]
