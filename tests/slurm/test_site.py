"""Site file, resources and offers: everything about a cluster that needs none."""

from dataclasses import replace
from pathlib import Path

import pytest

from instella.cluster import booking, files
from instella.cluster.allocation import Allocation
from instella.cluster.needs import MIN_TRAINING_MB, booked, needs_of
from instella.cluster.offers import Offer, habits, lacks, read_offers
from instella.cluster.ranks import variables
from instella.cluster.site import Site, read_site
from instella.cluster.slurm import seconds_of
from instella.errors import BadUse
from instella.prove.copies import PROJECT
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Placement

NANO = read_recipe(PROJECT / "recipes" / "nano.yaml")
FULL = read_recipe(PROJECT / "recipes" / "instella-3b.yaml")
PLACEMENT = Placement(recipe="recipes/nano.yaml", launcher="srun", ranks=2)


def test_the_shipped_site_files_can_be_read() -> None:
    folder = PROJECT / "workflow" / "profiles" / "slurm"
    assert read_site(folder / "site.yaml") == Site()
    mi300x = read_site(folder / "site-mi300x.yaml")
    assert mi300x.setup and mi300x.environment and mi300x.partition


def test_a_fault_of_the_site_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("partition: gpu\nqueue: long\n", encoding="utf-8")
    with pytest.raises(BadUse, match=r"site\.yaml:2: unknown setting 'queue'"):
        read_site(path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1:02:03", 3723.0), ("2-00:00:00", 172800.0), ("5:30", 330.0), ("UNLIMITED", None),
     ("INVALID", None), ("", None)],
)  # fmt: skip
def test_spans_of_slurm(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_a_stage_of_the_full_recipe_books_its_machines() -> None:
    graph = build_graph(FULL)
    needs = needs_of(graph["pretrain_stage2_seed5796"], FULL, PLACEMENT, Site())
    assert (needs.nodes, needs.ranks, needs.gpus, needs.trains) == (16, 8, 8, True)
    found = booked(needs, Site(partition="gpu", gpu_type="mi300x", account="a1"), 1)
    assert (found["nodes"], found["tasks"], found["mpi"]) == (16, 128, "srun")
    assert found["slurm_extra"] == "--gpus-per-node=mi300x:8"
    assert (found["slurm_partition"], found["slurm_account"]) == ("gpu", "a1")
    measured = needs_of(graph["evaluate_sft"], FULL, PLACEMENT, Site())
    assert (measured.nodes, measured.ranks, measured.gpus) == (1, 1, 1)


def test_memory_and_time_grow_with_the_attempt_up_to_the_limit() -> None:
    graph = build_graph(NANO)
    site = Site(max_minutes=300)
    needs = needs_of(graph["sft"], NANO, PLACEMENT, site)
    assert [booked(needs, site, attempt)["runtime"] for attempt in (1, 2)] == [240, 300]
    assert [booked(needs, site, attempt)["mem_mb"] for attempt in (1, 2)] == [
        MIN_TRAINING_MB, 2 * MIN_TRAINING_MB,
    ]  # fmt: skip
    whole = Site(memory_mb=500_000)
    needs = needs_of(graph["sft"], NANO, PLACEMENT, whole)
    assert [booked(needs, whole, attempt)["mem_mb"] for attempt in (1, 2)] == [500_000] * 2


def test_a_single_task_asks_for_no_srun() -> None:
    graph = build_graph(NANO)
    one = replace(PLACEMENT, ranks=1)
    found = booked(needs_of(graph["sft"], NANO, one, Site()), Site(), 1)
    assert not {"mpi", "tasks", "nodes"} & set(found)


def test_without_a_cluster_a_rule_books_memory_and_time_alone() -> None:
    graph = build_graph(NANO)
    local = replace(PLACEMENT, launcher="local")
    found = booking.resources("evaluate_{checkpoint}", graph, NANO, local, Site())
    assert {name: value(None, attempt=2) for name, value in found.items()} == {
        "mem_mb": 16000, "runtime": 240,
    }  # fmt: skip


def test_node_hours_of_a_dry_run() -> None:
    lines = booking.report(build_graph(FULL), FULL, PLACEMENT, Site())
    assert len(lines) == 1 + sum(stage.trains for stage in build_graph(FULL).values())
    assert lines[1].startswith("  pretrain_stage1: 16 nodes x 8 ranks, about 432.5 h in 19 jobs")
    assert "9,071.9 node-hours" in lines[0]


SINFO = """\
cpu|up|2-00:00:00|10|64|256000|(null)|idle
cpu|up|2-00:00:00|2|64|256000|(null)|down*
gpu|up|1-00:00:00|18|96|1500000|gpu:mi300x:8(S:0-1)|mix
old|inact|infinite|4|16|64000+|gpu:4|idle
"""


def test_offers_are_read() -> None:
    found = read_offers(SINFO, "cpu")
    assert found[2] == Offer("gpu", False, True, 1440.0, 18, 96, 1_500_000, 8, True)
    assert [item.works for item in found] == [True, False, True, True]
    assert found[3].gpus == 4 and found[3].minutes == float("inf") and not found[3].is_up


def test_a_cluster_that_has_all_lacks_nothing() -> None:
    site = Site(partition="gpu", cpu_partition="cpu")
    needs = booking.needs(build_graph(FULL), FULL, PLACEMENT, site)
    assert lacks(needs, site, read_offers(SINFO, "cpu")) == []


@pytest.mark.parametrize(
    ("site", "sinfo", "line"),
    [
        (Site(partition="gpus"), SINFO, "gpus is not there"),
        (Site(partition="old"), SINFO, "old is not up"),
        (Site(partition="gpu", max_minutes=2880), SINFO,
         "gpu ends jobs after 1440 min, and pretrain_stage1 books 2880; set max_minutes: 1440"),
        (Site(partition="gpu"), SINFO.replace("|18|", "|12|"),
         "pretrain_stage1 (and 3 more) needs 16 nodes with 8 cores, 593,944 MB and 8 accelerators; "
         "gpu has 12"),
        (Site(partition="gpu"), SINFO.replace("|mix", "|drain"), "gpu has 0 that work"),
        (Site(), SINFO, "the default partition has 0"),
    ],
)  # fmt: skip
def test_each_lack_is_a_line(site: Site, sinfo: str, line: str) -> None:
    needs = booking.needs(build_graph(FULL), FULL, PLACEMENT, site)
    found = lacks(needs, site, read_offers(sinfo, "cpu"))
    assert any(line in item for item in found), found
    assert len(found) < len(needs) / 2 and not any("\n" in item for item in found)


def test_a_cluster_that_forgets_jobs_quickly_is_told() -> None:
    assert habits("MaxJobCount = 1\nMinJobAge               = 10 sec\n")[0].startswith("MinJobAge")
    assert len(habits("MinJobAge               = 120 sec\n")) == 1
    assert habits("MinJobAge               = 300 sec\n") == []


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
server:/home /home nfs4 rw,vers=4.2,local_lock=none 0 0
server:/old /old nfs rw,vers=3,nolock 0 0
mgs:/fs /lustre/my\\040fs lustre rw,flock,lazystatfs 0 0
"""


@pytest.mark.parametrize(
    ("folder", "words"),
    [("/home/me/store", None), ("/lustre/my fs/store", None), ("/old/store", "nolock"),
     ("/scratch/store", "ext4"), ("/homes/store", "ext4")],
)  # fmt: skip
def test_file_systems_whose_locks_end_at_the_machine(folder: str, words: str | None) -> None:
    found = files.doubts(Path(folder), MOUNTS)
    assert found == [] if words is None else words in found[0]


def test_ranks_are_told_when_to_stop_and_where_to_talk() -> None:
    site = Site(interface="ib0", stop_seconds=60, environment={"NCCL_DEBUG": "WARN"})
    found = variables(Allocation("7", 2, 1000.0), site)
    assert found["INSTELLA_STOP_AT"] == "940.0"
    assert found["GLOO_SOCKET_IFNAME"] == found["NCCL_SOCKET_IFNAME"] == "ib0"
    assert found["NCCL_DEBUG"] == "WARN" and int(found["MASTER_PORT"]) > 0
    assert float(variables(Allocation("7", 2, float("inf")), site)["INSTELLA_STOP_AT"]) > 1e300


@pytest.mark.parametrize("condition", ["drng", "drain*", "down~", "maint"])
def test_nodes_that_take_no_job_do_not_work(condition: str) -> None:
    line = f"gpu|up|1-00:00:00|18|128|1000000|gpu:8|{condition}"
    assert [item.works for item in read_offers(line, "gpu")] == [False]
