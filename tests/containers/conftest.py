"""One engine, one image and one run of nano in containers, shared by all tests here."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from engine_helpers import ENGINES, Building, Docker, Engine, NoEngine, private_engine

from instella.containers import debian, loading, wheelhouse
from instella.containers.images import DEBIAN_LOCK, LOCK, read_images, write_images
from instella.errors import KitError, VerificationError
from instella.prove.copies import PROJECT, clone, copy_project
from instella.prove.finished import RecipeRun
from instella.prove.processes import Finished, kit

BUILD_SECONDS = 1500
NANO_SECONDS = 1500.0


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The first engine that starts, docker or else podman; processes of the tests take it."""
    reasons = []
    with ExitStack() as opened:
        for kind in ENGINES:
            try:
                started = opened.enter_context(private_engine(kind))
                break
            except NoEngine as reason:
                reasons.append(str(reason))
        else:
            pytest.skip("; ".join(reasons))
        patch = opened.enter_context(pytest.MonkeyPatch.context())
        for name, value in started.variables().items():
            patch.setenv(name, value)
        yield started


@pytest.fixture(scope="session")
def docker(engine: Engine) -> Docker:
    """The engine, for tests of what only docker does."""
    if not isinstance(engine, Docker):
        pytest.skip(f"this is about docker, and the engine here is {engine.name}")
    return engine


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> list[Building]:
    """The image, made twice at once in different folders and surroundings.

    The one is compared with the lock; the other makes the lock, in a copy of the project.
    """
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed (apt install mmdebstrap)")
    shared = PROJECT / "downloads"
    try:
        debian.fetch(debian.read_debian_lock(DEBIAN_LOCK), shared / "debian")
    except VerificationError:
        raise
    except KitError as error:
        pytest.skip(f"the locked Debian packages cannot be had: {error}")
    for site in wheelhouse.sites("cpu"):
        wheelhouse.fetch(site, shared / "wheels")
    folders = [tmp_path_factory.mktemp("a") / "x", tmp_path_factory.mktemp("b") / "longer name"]
    for folder in folders:
        copy_project(folder, "recipes/nano.yaml")
        (folder / "downloads").mkdir()
        for name in ("debian", "wheels"):
            (folder / "downloads" / name).symlink_to(shared / name)
    images = read_images()
    unlocked = replace(images["cpu"], manifest=None, config=None, layers=(), made_of=None)
    write_images({**images, "cpu": unlocked}, folders[1] / LOCK.relative_to(PROJECT))
    surroundings = [{"TZ": "Pacific/Kiritimati", "LC_ALL": "C"}, {"TZ": "America/Lima"}]
    processes = []
    actions = zip(("build", "lock"), folders, surroundings, (0o077, 0o002), strict=True)
    for action, folder, variables, umask in actions:
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "instella", "image", action, "cpu"], cwd=folder,
                env={**os.environ, **variables}, text=True, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, umask=umask,
            )
        )  # fmt: skip
    return [_ended(process, folder) for process, folder in zip(processes, folders, strict=True)]


def _ended(process: "subprocess.Popen[str]", folder: Path) -> Building:
    out, err = process.communicate(timeout=BUILD_SECONDS)
    return Building(process.returncode, out, err, folder)


@pytest.fixture(scope="session")
def image(engine: Engine, builds: list[Building]) -> None:
    """The image in the engine."""
    assert builds[0].code == 0, builds[0].err
    loading.load(read_images()["cpu"], builds[0].archive, engine.name)


@pytest.fixture(scope="session")
def nano_in_container(
    engine: Engine, image: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RecipeRun, Finished]:
    """nano, each stage in a container; never altered."""
    run = RecipeRun(clone(tmp_path_factory.mktemp("nano") / "kit", "recipes/nano.yaml"), "nano")
    setting = f'container={{"engine": "{engine.name}"}}'
    done = kit(run.folder, "--cores", "2", "--config", setting, timeout=NANO_SECONDS)
    assert done.code == 0, done.err
    print(f"\nnano in {engine.name}: {done.wall:.0f} s, {done.cpu:.0f} s of CPU time beside it")
    return run, done
