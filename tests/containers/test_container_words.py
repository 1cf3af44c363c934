"""The words of each engine, with each kind of accelerator, as recorded in golden/words.json."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from instella.containers.images import Image
from instella.containers.walls import DOWNLOADS, INPUTS, JOB, KIT, Mount, Plan
from instella.containers.words import apptainer_words, docker_arguments, podman_words
from instella.errors import BadUse

GOLDEN = json.loads((Path(__file__).parent / "golden" / "words.json").read_text("utf-8"))
IMAGE = Image(
    "cpu", None, None, f"sha256:{'1' * 64}", f"sha256:{'2' * 64}", (f"sha256:{'3' * 64}",)
)
DEVICES = {"none": (), "cuda": (), "rocm": ("/dev/kfd", "/dev/dri")}


def plan(accel: str, by_root: bool) -> Plan:
    return Plan(
        name="instella-0",
        image=IMAGE,
        command=("python3", "-m", "instella", "job", "/job/job.json", "--confined"),
        mounts=(
            Mount(Path("/home/a b/kit/instella"), KIT / "instella"),
            Mount(Path("/store/work/0/job"), JOB),
            Mount(Path("/store/work/0/inputs/tokens"), INPUTS / "tokens"),
            Mount(Path("/store/work/0/output"), Path("/output"), writable=True),
        ),
        environment={"HOME": "/tmp", "LANG": "C.UTF-8"},
        user=(10001, 10001) if by_root else (1000, 1000),
        accel=accel,
        devices=DEVICES[accel],
        groups=(44, 109) if accel == "rocm" else (),
        shm_gib=2,
        memory_gib=8 if accel == "none" else None,
        caller_is_root=by_root,
    )


def words(engine: str, accel: str, by_root: bool) -> Any:
    asked = plan(accel, by_root)
    if engine == "docker":
        return json.loads(json.dumps(docker_arguments(asked)))
    if engine == "podman":
        return podman_words(asked)
    return apptainer_words(asked, Path("/downloads/images/cpu-111111111111.sif"))


@pytest.mark.parametrize("case", sorted(GOLDEN))
def test_words_are_the_recorded_ones(case: str) -> None:
    engine, accel, caller = case.split()
    assert words(engine, accel, caller == "root") == GOLDEN[case]


def test_every_engine_meets_every_accelerator() -> None:
    engines = {tuple(case.split()[:2]) for case in GOLDEN}
    assert engines == {(e, a) for e in ("docker", "podman", "apptainer") for a in DEVICES}


def test_a_rootless_engine_calls_its_caller_zero() -> None:
    assert docker_arguments(plan("none", False), rootless=True)["user"] == "0:0"
    assert docker_arguments(plan("none", False))["user"] == "1000:1000"


@pytest.mark.parametrize("case", sorted(GOLDEN))
def test_no_case_has_a_network_or_a_downloads_folder(case: str) -> None:
    text = json.dumps(GOLDEN[case])
    assert '"network_mode": "none"' in text or "--network=none" in text
    assert f'"{DOWNLOADS}"' not in text and "privileged" not in text.replace("no-new-", "")


@pytest.mark.parametrize(
    ("engine", "folder"), [("podman", "/a,b"), ("podman", '/a"b'), ("apptainer", "/a:b")]
)
def test_a_path_that_would_end_early_is_refused(engine: str, folder: str) -> None:
    odd = replace(plan("none", True), mounts=(Mount(Path(folder), KIT / "instella"),))
    with pytest.raises(BadUse, match=f"{engine} cannot mount a path with"):
        podman_words(odd) if engine == "podman" else apptainer_words(odd, Path("/cpu.sif"))
    assert folder in json.dumps(docker_arguments(odd)["mounts"]).replace("\\", "")
