"""What an engine says is told as its own error, and what it does not say is not put in its mouth."""

import errno
import io
import os
import queue
import time
from collections.abc import Iterator
from typing import Any

import pytest
from engine_helpers import Docker

from instella.containers import docker_engine
from instella.containers.images import read_images
from instella.containers.walls import plan_command
from instella.errors import KitError
from instella.progress import Reporter
from instella.recipe.settings import Container

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
def test_the_real_stream_of_events_ends_after_the_grace(docker: Docker, image: None) -> None:
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
def test_a_log_that_cannot_be_written_is_no_fault_of_docker(docker: Docker, image: None) -> None:
    words = ("python3", "-c", "import sys; print('x', file=sys.stderr)")
    plan = plan_command("instella-full", read_images()["cpu"], Container(engine="docker"), words)
    with pytest.raises(OSError, match="No space left on device"):
        docker_engine.run(plan, Reporter("toy", stream=FullDisk()))
    end = time.monotonic() + GONE_SECONDS
    while docker.containers() and time.monotonic() < end:
        time.sleep(0.1)
    assert docker.containers() == []
