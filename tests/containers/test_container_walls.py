"""The plan of a container shows a job's own folders only, and walls explain themselves."""

import errno
import os
import socket
import subprocess
import sys
import urllib.error
from dataclasses import replace
from pathlib import Path

import pytest

from instella import numerics
from instella.artifacts.handover import read_handover
from instella.artifacts.job import Job
from instella.containers.images import Image, read_images
from instella.containers.inside import explained
from instella.containers.walls import OTHER_USER, Plan, let_in, plan_of, take_back
from instella.containers.words import apptainer_words, docker_arguments, podman_words
from instella.errors import BadUse, KitError
from instella.progress import Reporter
from instella.prove.copies import PROJECT
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Container

RECIPE = PROJECT / "recipes" / "nano.yaml"


def make_job(work: Path) -> Job:
    recipe = read_recipe(RECIPE)
    stage = build_graph(recipe)["sft"]
    inputs = {role: work / "inputs" / role for role in stage.inputs}
    for folder in (*inputs.values(), work / "output", work / "scratch"):
        folder.mkdir(parents=True)
    return Job(
        stage=stage.name,
        settings=stage.settings,
        inputs=inputs,
        output=work / "output",
        scratch=work / "scratch",
        downloads=work / "downloads",
        recipe_folder=RECIPE.parent,
        numerics=recipe.numerics,
        ranks=2,
        workers=3,
        report=Reporter(stage.name),
    )


def make_plan(work: Path) -> Plan:
    return plan_of(make_job(work), RECIPE, read_images()["cpu"], Container(engine="docker"))


def test_the_plan_mounts_the_job_and_nothing_else(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "0")
    seen = {str(mount.target): (mount.source, mount.writable) for mount in plan.mounts}
    assert seen == {
        "/kit/instella": (PROJECT / "instella", False),
        "/kit/requirements": (PROJECT / "requirements", False),
        "/recipe": (PROJECT / "recipes", False),
        "/job": (tmp_path / "0" / "job", False),
        "/inputs/tokens": (tmp_path / "0" / "inputs" / "tokens", False),
        "/inputs/init": (tmp_path / "0" / "inputs" / "init", False),
        "/output": (tmp_path / "0" / "output", True),
        "/scratch": (tmp_path / "0" / "scratch", True),
    }
    assert plan.user != (0, 0)
    assert str(tmp_path) not in str((plan.name, plan.command, dict(plan.environment)))


@pytest.mark.parametrize("name", ["portable-x86", "gfx942", "sm90"])
def test_the_pins_of_the_class_are_told_to_the_container(tmp_path: Path, name: str) -> None:
    job = replace(make_job(tmp_path), numerics=name)
    plan = plan_of(job, RECIPE, read_images()["cpu"], Container(engine="docker"))
    told = {f"--env={variable}={value}" for variable, value in numerics.pins(name).items()}
    assert numerics.pins(name).items() <= docker_arguments(plan)["environment"].items()
    for words in (podman_words(plan), apptainer_words(plan, tmp_path / "x")):
        assert told and told <= set(words)


def test_the_job_inside_has_the_paths_of_the_container(tmp_path: Path) -> None:
    make_plan(tmp_path / "0")
    text = (tmp_path / "0" / "job" / "job.json").read_text()
    assert str(tmp_path) not in text and str(PROJECT) not in text
    with pytest.raises(BadUse, match=r"/recipe/nano\.yaml"):
        read_handover(tmp_path / "0" / "job" / "job.json")


def test_a_job_has_one_name_and_other_jobs_have_others(tmp_path: Path) -> None:
    first = make_plan(tmp_path / "0").name
    assert first != make_plan(tmp_path / "1").name
    os.rename(tmp_path / "0", tmp_path / "2")
    assert make_plan(tmp_path / "0").name == first


def test_files_of_the_container_come_back_to_the_caller(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "0")
    output = tmp_path / "0" / "output"
    (tmp_path / "outside").write_text("x")
    (output / "link").symlink_to(tmp_path / "outside")
    (output / "file").write_text("x")
    let_in(plan)
    inside = OTHER_USER if os.getuid() == 0 else os.getuid()
    assert {path.lstat().st_uid for path in (output, *output.iterdir())} == {inside}
    take_back(plan)
    assert {path.lstat().st_uid for path in (output, *output.iterdir())} == {os.getuid()}
    assert (tmp_path / "outside").stat().st_uid == os.getuid()


def wrapped(error: Exception) -> Exception:
    """As libraries do: another error, made from this one."""
    outer = RuntimeError("went wrong")
    outer.__cause__ = error
    return outer


READ_ONLY = OSError(errno.EROFS, "x", "/kit/x")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (READ_ONLY, "s: /kit/x: Read-only file system: a stage in a container writes to"),
        (wrapped(READ_ONLY), "s: /kit/x: Read-only file system"),
        (OSError(errno.EACCES, "x", "/etc/x"), "s: /etc/x: Permission denied: a stage"),
        (OSError(errno.ENETUNREACH, "x"), "s: tried to reach the network"),
        (urllib.error.URLError(socket.gaierror(-3, "x")), "s: tried to reach the network"),
        (FileNotFoundError(errno.ENOENT, "x", "/inputs/a"), "s: /inputs/a: there is no such"),
        (FileNotFoundError(errno.ENOENT, "x", "/tmp/no/a"), "s: /tmp/no/a: there is no such"),
        (
            wrapped(OSError(errno.ENOSPC, "x", "/output/a")),
            "s: /output/a: No space left on device: ",
        ),
        (OSError(errno.EDQUOT, "x"), "s: Disk quota exceeded: the disk is full; free some space"),
    ],
)
def test_walls_are_explained(error: Exception, words: str) -> None:
    with pytest.raises(KitError) as caught, explained("s"):
        raise error
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        KeyError("x"),
        OSError(errno.EIO, "x"),
        *(
            FileNotFoundError(errno.ENOENT, "x", f"{place}/a")
            for place in ("/output", "/scratch/b/..", "/tmp", "/kit/instella")
        ),
    ],
)
def test_other_errors_stay_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, explained("s"):
        raise error
    assert caught.value is error


def test_the_kits_own_errors_stay_as_they_are() -> None:
    with pytest.raises(BadUse, match="own words"), explained("s"):
        raise BadUse("own words") from READ_ONLY


def test_a_job_ends_when_its_caller_is_gone() -> None:
    code = (
        "import time; from instella.containers.inside import end_with_caller\n"
        "end_with_caller(); print('up', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(20) == -9
    process.stdout.close()


def test_an_image_has_a_tag_of_its_own() -> None:
    image = Image("cpu", None, None, f"sha256:{'a' * 64}", None, ())
    assert image.tag == "instella/cpu:aaaaaaaaaaaa"
