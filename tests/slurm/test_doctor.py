"""``instella doctor`` names what lacks, a line each, and books nothing."""

import re
from pathlib import Path

from slurm_cluster import Cluster

from instella.prove.copies import PROJECT
from instella.prove.processes import Finished, instella

NANO = ("--recipe", "recipes/nano.yaml")
FULL = ("--recipe", "recipes/instella-3b.yaml")


def _lacks(done: Finished) -> list[str]:
    return [line for line in done.out.splitlines() if line.startswith("lack: ")]


def _config(folder: Path, **settings: object) -> tuple[str, str]:
    """Options for a placement with these settings besides the recipe."""
    path = folder / "config.yaml"
    lines = [f"{name}: {value}" for name, value in settings.items()]
    path.write_text("\n".join(["recipe: recipes/nano.yaml", *lines, ""]), encoding="utf-8")
    return "--config", str(path)


def test_a_machine_that_has_all(tmp_path: Path) -> None:
    done = instella(PROJECT, *_config(tmp_path), "doctor")
    assert done.code == 0 and _lacks(done) == [], done.out + done.err
    assert "this machine can run recipes/nano.yaml: nothing lacks" in done.out


def test_what_a_machine_lacks_is_told_with_a_cure(tmp_path: Path) -> None:
    done = instella(PROJECT, *_config(tmp_path, ranks=1024, workers=1000), "doctor")
    assert done.code == 1
    found = _lacks(done)
    assert len(found) == 2 and "set ranks: " in found[0] and "set workers: " in found[1]
    done = instella(PROJECT, *FULL, "doctor")
    assert done.code == 1
    assert any("numerics class gfx942" in line for line in _lacks(done))
    assert any("set store in config.yaml to a larger disk" in line for line in _lacks(done))


def test_without_slurm_it_is_one_line(tmp_path: Path) -> None:
    done = instella(PROJECT, *NANO, "doctor", "--cluster", extra={"PATH": str(tmp_path)})
    assert done.code == 1
    assert done.err.splitlines() == [
        "instella: sinfo is not there: this is no machine of a SLURM cluster, or PATH lacks it"
    ]


def test_what_a_cluster_lacks(cluster: Cluster, tmp_path: Path) -> None:
    done = instella(PROJECT, *FULL, "doctor", "--cluster", extra=cluster.environment)
    found = _lacks(done)
    assert done.code == 1
    assert any(re.search(r"ends jobs after 60 min, and \w+ books 1440", line) for line in found)
    assert any("pretrain_stage1 (and 3 more) needs 16 nodes" in line for line in found)
    assert "9,071.9 node-hours in all" in done.out
    site = tmp_path / "site.yaml"
    site.write_text("max_minutes: 60\n", encoding="utf-8")
    options = _config(tmp_path, site=site, store=tmp_path / "store", results=tmp_path / "results")
    done = instella(PROJECT, *options, "doctor", "--cluster", extra=cluster.environment)
    # All that lacks is a file system that other machines see, wherever the tests lie.
    assert done.code == int(bool(_lacks(done)))
    assert all(str(tmp_path) in line for line in _lacks(done)), done.out
    assert "largest job: 1 nodes, on each 1 ranks, 8,000 MB and 0 accelerators" in done.out
    assert cluster.command("squeue", "--noheader") == ""
