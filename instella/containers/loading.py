"""Puts a built image into an engine."""

import subprocess
from contextlib import closing
from pathlib import Path

from docker.errors import APIError

from instella.containers import docker_engine
from instella.containers.engines import require_podman_image
from instella.containers.images import Image
from instella.errors import KitError


def load(image: Image, archive: Path, engine: str) -> None:
    """Load an archive that ``write_archive`` wrote, and check that the engine has its layers.

    Raises:
        BadUse: no engine answers, or it has something else afterwards.
        KitError: the engine refuses the archive.
    """
    if engine == "podman":
        done = subprocess.run(
            ["podman", "load", "--quiet", "--input", str(archive)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise KitError(f"podman load: {' '.join(done.stderr.split())[-300:]}")
        require_podman_image(image)
        return
    with closing(docker_engine.connect()) as client:
        try:
            with archive.open("rb") as file:
                for line in client.api.load_image(file, quiet=True):
                    if "error" in line:
                        raise KitError(f"docker load: {line['error']}")
        except APIError as error:
            raise KitError(f"docker load: {error.explanation}") from error
        # An engine that is handed an empty or odd archive may say nothing.
        docker_engine.require_image(client, image)
