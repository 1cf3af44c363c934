"""What an engine says is told as its own error, and what it does not say is not put in its mouth."""

import errno
import io
import json
import os
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import Engine

from instella.containers import docker_engine, loading
from instella.containers.engines import require_podman_image
from instella.containers.images import Image, read_images
from instella.containers.walls import plan_command
from instella.errors import BadUse, KitError
from instella.progress import Reporter
from instella.recipe.settings import Container

LAYER = f"sha256:{'3' * 64}"
IMAGE = Image("cpu", None, None, f"sha256:{'1' * 64}", f"sha256:{'2' * 64}", (LAYER,))
GRACE = 0.3
GONE_SECONDS = 30.0


class Events:
    """A stream of events that stays open, as docker's, until it is closed."""

    def __init__(self, *actions: str) -> None:
        self.waiting: queue.Queue[str | None] = queue.Queue()
        for action in actions:
            self.waiting.put(action)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while (action := self.waiting.get(timeout=30)) is not None:
            yield {"Action": action, "Actor": {"Attributes": {"exitCode": "137"}}}

    def close(self) -> None:
        self.waiting.put(None)


@pytest.mark.parametrize(
    ("actions", "out_of_memory"),
    [
        (("die",), False),
        (("die", "destroy"), False),
        (("oom", "die"), True),
        (("die", "oom"), True),
        (("die", "oom", "destroy"), True),
    ],
)
def test_an_end_is_told_though_nothing_removes_the_container(
    actions: tuple[str, ...], out_of_memory: bool
) -> None:
    assert docker_engine.end(Events(*actions), GRACE) == (137, out_of_memory)


def test_an_engine_that_goes_first_is_told() -> None:
    events = Events()
    events.close()
    with pytest.raises(KitError, match="docker ended while a stage ran in it"):
        docker_engine.end(events, GRACE)


@pytest.mark.slow
def test_the_real_stream_of_events_ends_after_the_grace(engine: Engine, image: None) -> None:
    client = docker_engine.connect()
    words = ["python3", "-c", "raise SystemExit(7)"]
    container = client.containers.create(read_images()["cpu"].config, words, network_mode="none")
    try:
        events = docker_engine.watch(client, container)
        container.start()
        assert docker_engine.end(events, 1.0) == (7, False)
    finally:
        container.remove(force=True)
        client.close()


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.slow
def test_a_log_that_cannot_be_written_is_no_fault_of_docker(engine: Engine, image: None) -> None:
    words = ("python3", "-c", "import sys; print('x', file=sys.stderr)")
    plan = plan_command("instella-full", read_images()["cpu"], Container(engine="docker"), words)
    with pytest.raises(OSError, match="No space left on device"):
        docker_engine.run(plan, Reporter("toy", stream=FullDisk()))
    end = time.monotonic() + GONE_SECONDS
    while engine.containers() and time.monotonic() < end:
        time.sleep(0.1)
    assert engine.containers() == []


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in podman's place; it does what the test writes."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "bin" / "podman"


def _write(program: Path, text: str) -> None:
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def test_podman_that_fails_is_not_podman_without_the_image(podman: Path) -> None:
    _write(podman, "exit 1")
    with pytest.raises(BadUse, match="podman has no image cpu"):
        require_podman_image(IMAGE)
    _write(podman, "echo Error: no storage >&2; exit 125")
    with pytest.raises(KitError, match=r"^podman: Error: no storage$") as caught:
        require_podman_image(IMAGE)
    assert type(caught.value) is KitError


def test_an_image_loaded_into_podman_has_the_layers_of_the_lock(
    podman: Path, tmp_path: Path
) -> None:
    for layers in ([], [LAYER, LAYER]):
        _write(podman, f"[ $2 != inspect ] || echo '{json.dumps(layers)}'")
        with pytest.raises(BadUse, match="podman has no image cpu"):
            loading.load(IMAGE, tmp_path / "image.tar", "podman")
    _write(podman, f"[ $2 != inspect ] || echo '{json.dumps([LAYER])}'")
    loading.load(IMAGE, tmp_path / "image.tar", "podman")
