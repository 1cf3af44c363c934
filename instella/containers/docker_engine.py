"""Runs a plan with docker, through the Docker SDK for Python; DOCKER_HOST is honoured."""

import codecs
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import CancellableStream
from docker.utils.socket import frames_iter

from instella.artifacts.handover import failure, relay
from instella.containers.images import Image
from instella.containers.walls import LABEL, Plan
from instella.containers.words import docker_arguments
from instella.errors import BadUse, MachineError
from instella.progress import Reporter

STOP_SECONDS = 5
# After a container's end its removal, and word of lacking memory, follow within milliseconds.
GRACE_SECONDS = 5.0
_OUT_OF_MEMORY = "oom"


def connect() -> docker.DockerClient:
    """A client of the engine that DOCKER_HOST names, or of the usual one.

    Raises:
        BadUse: no engine answers.
    """
    try:
        client = docker.from_env(timeout=3600)
        client.ping()
    except (DockerException, requests.exceptions.RequestException) as error:
        raise BadUse(
            f"container.engine is docker, and no engine answers ({_short(error)}); start it, name "
            "its socket in DOCKER_HOST, or give this user the right to use it"
        ) from error
    return client


def not_loaded(image: Image, engine: str) -> BadUse:
    """The error for an image that the engine does not hold."""
    return BadUse(
        f"{engine} has no image {image.name} with digest {image.manifest}; make and load it with "
        f"`instella image build {image.name} --load {engine}`"
    )


def run(plan: Plan, report: Reporter) -> None:
    """Run a plan to its end; relay its lines, raise its failure.

    Raises:
        BadUse: no engine, or the image is not loaded.
        KitError: the job's own error.
        MachineError: the engine's, a signal, or lack of memory.
        OSError: the job's lines cannot be written here, such as on a full disk.
    """
    with closing(connect()) as client:
        with _engine_speaks():
            require_image(client, plan.image)
            remove_leftovers(client, plan.name)
        _run(client, plan, report)


@contextmanager
def _engine_speaks() -> Iterator[None]:
    """Errors of what is asked of the engine, as one line; those of this process are not its."""
    try:
        yield
    except (APIError, requests.exceptions.RequestException, OSError) as error:
        raise MachineError(
            f"docker: {_short(error)}; see the engine's log, and run again"
        ) from error


def require_image(client: docker.DockerClient, image: Image) -> None:
    """The engine holds the image of the lock, layer by layer.

    Raises:
        BadUse: it is not there.
    """
    for name in (image.config, image.manifest):
        with suppress(ImageNotFound):
            found = client.images.get(name)
            if tuple(found.attrs["RootFS"]["Layers"]) == image.layers:
                return
    raise not_loaded(image, "docker")


def remove_leftovers(client: docker.DockerClient, name: str) -> None:
    """Remove the containers of earlier attempts at the same job."""
    for item in client.containers.list(all=True, filters={"label": f"{LABEL}={name}"}):
        _remove(item)


def _run(client: docker.DockerClient, plan: Plan, report: Reporter) -> None:
    with _engine_speaks():
        options = client.info().get("SecurityOptions") or ()
        rootless = any("rootless" in option for option in options)
        container = client.containers.create(**docker_arguments(plan, rootless))
    try:
        with ExitStack() as opened:
            with _engine_speaks():
                events = opened.enter_context(closing(watch(client, container)))
                parts = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
                attached = opened.enter_context(closing(container.attach_socket(params=parts)))
                container.start()
            last = relay(_lines(_frames(attached)), report)
            code, out_of_memory = end(events)
    finally:
        _remove(container)
    if out_of_memory:
        raise MachineError("killed for lack of memory; raise container.memory_gib")
    if code:
        raise failure("the container", code, last)


def watch(client: docker.DockerClient, container: Container) -> CancellableStream:
    """The events that tell of a container's end, for ``end``."""
    filters = {"container": container.id, "event": ["die", "oom", "destroy"]}
    return client.events(filters=filters, decode=True)


def _frames(attached: Any) -> Iterator[bytes]:
    with _engine_speaks():
        for _, data in frames_iter(attached, tty=False):
            yield data


def _lines(frames: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for data in frames:
        *lines, rest = (rest + decoder.decode(data)).split("\n")
        yield from lines
    if rest:
        yield rest


def end(events: CancellableStream, grace: float = GRACE_SECONDS) -> tuple[int, bool]:
    """Status of the container's end, and whether memory was lacking.

    Args:
        events: of ``watch``.
        grace: seconds that the engine has, after the end, to remove the container.

    Raises:
        MachineError: the engine ended first.
    """
    code, out_of_memory = None, False
    enough = threading.Timer(grace, events.close)
    enough.daemon = True
    try:
        for event in events:
            if event["Action"] == "die":
                code = int(event["Actor"]["Attributes"]["exitCode"])
                enough.start()
            elif event["Action"] == _OUT_OF_MEMORY:
                out_of_memory = True
            elif event["Action"] == "destroy":
                break
    finally:
        enough.cancel()
    if code is None:
        raise MachineError("docker ended while a stage ran in it; start it and run again")
    return code, out_of_memory and code != 0


def _remove(container: Container) -> None:
    """Stop and remove; the engine may be doing so already, or be gone."""
    with suppress(NotFound, APIError, requests.exceptions.RequestException):
        container.stop(timeout=STOP_SECONDS)
    with suppress(NotFound, APIError, requests.exceptions.RequestException):
        container.remove(force=True)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
