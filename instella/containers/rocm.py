"""Images that are built from a Dockerfile on a published base: those with accelerators.

Compiling for accelerators gives other bytes each time, so these images are not rebuilt to the
same digest: what is pinned is all that goes in, and the digest of the image once built.
"""

import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

from docker.errors import APIError, ImageNotFound

from instella.containers import docker_engine, policy
from instella.containers.images import FOLDER, Image, made_of, require_lock
from instella.errors import BadUse, KitError, VerificationError


def build(image: Image, say: Callable[[str], None]) -> str:
    """Build with docker's own command line (BuildKit); returns the image's id.

    Raises:
        BadUse: the base has no digest, a lock is missing, or docker is not installed.
        VerificationError: the image's folder breaks a rule.
        KitError: the build failed.
    """
    base = base_reference(image)
    require_lock(image.name)
    policy.require_rules(image.name)
    say(f"building {image.name} on {base}; compilers take hours")
    command = [
        "docker", "build", "--build-arg", f"BASE={base}", "--tag", f"instella/{image.name}:built",
        str(FOLDER / image.name),
    ]  # fmt: skip
    try:
        code = subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        raise BadUse("docker is not installed; install it") from None
    if code:
        raise KitError(
            f"docker build of {image.name} ended with status {code}; see its lines above"
        )
    return str(_built(image)["Id"])


def base_reference(image: Image) -> str:
    """Name and digest of the base.

    Raises:
        BadUse: the lock has no digest for it.
    """
    if image.base is None or image.base_digest is None:
        raise BadUse(
            f"image {image.name}: its base {image.base} has no digest in containers/images.lock, "
            f"so what it is made of is not known; run `instella image lock {image.name}` where "
            "the registry can be reached"
        )
    return f"{image.base}@{image.base_digest}"


def lock(image: Image, say: Callable[[str], None]) -> Image:
    """Fill in the base's digest if it is missing, and the image's own if it is built.

    Raises:
        BadUse: no engine answers.
        KitError: the registry cannot be reached.
    """
    if image.base_digest is None:
        say(f"asking the registry for {image.base}")
        with closing(docker_engine.connect()) as client:
            try:
                found = client.images.get_registry_data(image.base).id
            except APIError as error:
                raise KitError(f"{image.base}: {error.explanation}") from error
        image = replace(image, base_digest=found)
    try:
        state = _built(image)
    except BadUse as missing:
        say(str(missing))
        return image
    # An engine gives an image it built no manifest; its configuration names every layer.
    layers = tuple(state["RootFS"]["Layers"])
    return replace(
        image,
        manifest=state["Id"],
        config=state["Id"],
        layers=layers,
        made_of=made_of(image.name),
    )


def verify(image: Image) -> None:
    """Compare the image that the engine has with the lock.

    Raises:
        VerificationError: they differ, or the image's folder breaks a rule.
    """
    policy.require_rules(image.name)
    found = _built(image)
    if found["Id"] != image.config or tuple(found["RootFS"]["Layers"]) != image.layers:
        raise VerificationError(
            f"image {image.name}: expected {image.config}, the engine has {found['Id']}"
        )


def _built(image: Image) -> dict[str, Any]:
    with closing(docker_engine.connect()) as client:
        try:
            return dict(client.images.get(f"instella/{image.name}:built").attrs)
        except ImageNotFound:
            raise BadUse(
                f"image {image.name} is not built here; `instella image build {image.name}` does it"
            ) from None
