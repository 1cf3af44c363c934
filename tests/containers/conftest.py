"""One engine, one image and one run of nano in containers, shared by all tests here."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_helpers import Building, Engine, private_docker, why_no_docker

from instella.containers import debian
from instella.containers.build import DEBIAN_LOCK
from instella.errors import KitError, VerificationError
from instella.prove.copies import PROJECT, clone
from instella.prove.finished import RecipeRun
from instella.prove.processes import Finished, kit

BUILD_SECONDS = 1500
NANO_SECONDS = 1500.0
DOCKER = 'container={"engine": "docker"}'


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    reason = why_no_docker()
    if reason is not None:
        pytest.skip(reason)
    with private_docker() as started, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", started.socket)
        yield started


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> list[Building]:
    """The image, built twice at once in different folders and surroundings."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed (apt install mmdebstrap)")
    downloads = PROJECT / "downloads"
    try:
        debian.fetch(debian.read_debian_lock(DEBIAN_LOCK), downloads / "debian")
    except VerificationError:
        raise
    except KitError as error:
        pytest.skip(f"the locked Debian packages cannot be had: {error}")
    (downloads / "wheels").mkdir(exist_ok=True)
    folders = [tmp_path_factory.mktemp("a"), tmp_path_factory.mktemp("b") / "another, longer name"]
    surroundings = [{"TZ": "Pacific/Kiritimati", "LC_ALL": "C"}, {"TZ": "America/Lima"}]
    processes = []
    for folder, words, umask in zip(folders, surroundings, (0o077, 0o002), strict=True):
        (folder / "downloads").mkdir(parents=True)
        for name in ("debian", "wheels"):
            (folder / "downloads" / name).symlink_to(downloads / name)
        config = folder / "config.yaml"
        config.write_text(f"recipe: x\ndownloads: '{folder / 'downloads'}'\n", encoding="utf-8")
        command = [sys.executable, "-m", "instella", "image", "build", "cpu", "--config"]
        processes.append(
            subprocess.Popen(
                [*command, str(config)], cwd=PROJECT, env={**os.environ, **words}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, umask=umask,
            )
        )  # fmt: skip
        if not any((downloads / "wheels").iterdir()):
            processes[0].wait(BUILD_SECONDS)
    return [_ended(process, folder) for process, folder in zip(processes, folders, strict=True)]


def _ended(process: "subprocess.Popen[str]", folder: Path) -> Building:
    out, err = process.communicate(timeout=BUILD_SECONDS)
    archives = sorted((folder / "downloads" / "images").glob("*.tar"))
    return Building(process.returncode, out, err, archives[0] if archives else folder / "none")


@pytest.fixture(scope="session")
def image(engine: Engine, builds: list[Building]) -> None:
    """The image in the engine."""
    assert builds[0].code == 0, builds[0].err
    engine.docker("load", "--quiet", "--input", str(builds[0].archive))


@pytest.fixture(scope="session")
def nano_in_docker(
    engine: Engine, image: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RecipeRun, Finished]:
    """nano, each stage in a container; never altered."""
    run = RecipeRun(clone(tmp_path_factory.mktemp("nano") / "kit", "recipes/nano.yaml"), "nano")
    done = kit(run.folder, "--cores", "2", "--config", DOCKER, timeout=NANO_SECONDS)
    assert done.code == 0, done.err
    print(f"\nnano in docker: {done.wall:.0f} s, {done.cpu:.0f} s of CPU time beside the engine's")
    return run, done
