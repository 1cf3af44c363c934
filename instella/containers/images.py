"""Which image serves which stage, and the digests that ``containers/images.lock`` pins.

The manifest's digest of a stage's image is part of its identity. Read while Snakemake
parses, so nothing heavy is imported here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from instella.artifacts.identity import lock_hash
from instella.canonical import json_bytes, read_json, sha256_bytes, sha256_file
from instella.containers.dockerfiles import instructions
from instella.errors import BadUse, VerificationError
from instella.recipe.graph import Stage
from instella.recipe.settings import Container, Source

FORMAT = "instella.images/1"
FOLDER = Path(__file__).resolve().parents[2] / "containers"
LOCK = FOLDER / "images.lock"
DEBIAN_LOCK = FOLDER / "cpu" / "debian.lock"

NONE = "none"
IMAGES_FOLDER = "images"
"""Folder below the downloads where archives of images lie."""
CPU = "cpu"
IMAGES = (CPU, "cpu-verl", "rocm-train", "rocm-verl", "rocm-eval")
# The kinds of stages are the modules of this folder.
_STAGES = Path(__file__).resolve().parents[1] / "stages"
_GPU_CLASS = "gfx942"
_BY_KIND = {
    "pretrain": "rocm-train",
    "merge": "rocm-train",
    "finetune": "rocm-train",
    "preference": "rocm-train",
    "policy": "rocm-verl",
    "evaluate": "rocm-eval",
    "baseline": "rocm-eval",
}
# These sources come over the network, which no container has; their bytes are pinned by hash.
_FETCHED = ("package", "hub")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FIELDS = {"base", "base_digest", "manifest", "config", "layers", "made_of"}
CPU_IMAGES = (CPU, "cpu-verl")
# Images that hold an environment that ./kit setup makes too, by its lock.
_ENVIRONMENTS = {"cpu-verl": "requirements/environments/verl.lock"}


@dataclass(frozen=True)
class Image:
    """One image of the lock.

    Attributes:
        name: one of ``IMAGES``.
        base: the image it is built on, without digest; None if it is built from packages.
        base_digest: manifest digest of the base, ``sha256:...``; None while unknown.
        manifest: digest of its manifest, which identities hold; None until it is locked.
        config: digest of its configuration, which is the image's id in docker and podman.
        layers: digests of the uncompressed layers, in order.
        made_of: what ``made_of`` gave when it was locked; None until it is.
    """

    name: str
    base: str | None
    base_digest: str | None
    manifest: str | None
    config: str | None
    layers: tuple[str, ...]
    made_of: str | None = None

    @property
    def tag(self) -> str:
        """Name and tag under which an engine holds it; the tag names the manifest."""
        return f"instella/{self.name}:{(self.manifest or 'sha256:unlocked')[7:19]}"


def read_images(path: Path = LOCK) -> dict[str, Image]:
    """Name to image.

    Raises:
        VerificationError: not the lock's form, or something that is no digest.
    """
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise VerificationError(f"{path}: format: expected {FORMAT}")
    images = value.get("images")
    if not isinstance(images, dict) or set(images) != set(IMAGES):
        raise VerificationError(f"{path}: images: expected {', '.join(IMAGES)}")
    return {name: _image(path, name, images[name]) for name in IMAGES}


def _image(path: Path, name: str, value: Any) -> Image:
    if (
        not isinstance(value, dict)
        or set(value) != _FIELDS
        or not isinstance(value["layers"], list)
    ):
        raise VerificationError(f"{path}: {name}: expected {', '.join(sorted(_FIELDS))}")
    digests = [value["base_digest"], value["manifest"], value["config"], *value["layers"]]
    for digest in digests:
        if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
            raise VerificationError(f"{path}: {name}: {digest!r} is no sha256 digest")
    return Image(name, **{**value, "layers": tuple(value["layers"])})


def write_images(images: Mapping[str, Image], path: Path = LOCK) -> None:
    """Write the lock, one image a line."""
    lines = []
    for name in sorted(images):
        value = {field: getattr(images[name], field) for field in _FIELDS}
        lines.append(f'"{name}":{json_bytes(value).decode().strip()}')
    body = ",\n".join(lines)
    path.write_text(f'{{"format":"{FORMAT}","images":{{\n{body}\n}}}}\n', encoding="utf-8")


def image_name(stage: Stage, numerics: str, container: Container) -> str | None:
    """Name of the image that runs a stage; None: it runs on the host.

    On the host run all stages without an engine, imported ones, which compute nothing, and
    sources that are fetched: no container has a network.
    """
    source = stage.settings.get("source")
    is_fetched = isinstance(source, Source) and source.kind in _FETCHED
    if container.engine == NONE or stage.is_imported or is_fetched:
        return None
    chosen = (container.images or {}).get(stage.kind)
    return chosen or (_BY_KIND.get(stage.kind, CPU) if numerics == _GPU_CLASS else CPU)


def stage_images(
    graph: Mapping[str, Stage], numerics: str, container: Container, lock: Path = LOCK
) -> dict[str, str]:
    """Stage to the manifest digest of its image; stages on the host are left out.

    Raises:
        BadUse: ``container.images`` names a kind or an image that is not there, or an image
            has no digest.
    """
    _check_chosen(container.images or {})
    names = {name: image_name(stage, numerics, container) for name, stage in graph.items()}
    wanted = {name for name in names.values() if name is not None}
    if not wanted:
        return {}
    images = read_images(lock)
    digests = {name: locked(images, name).manifest for name in sorted(wanted)}
    return {stage: str(digests[name]) for stage, name in names.items() if name is not None}


def _check_chosen(chosen: Mapping[str, str]) -> None:
    kinds = sorted(path.stem for path in _STAGES.glob("[!_]*.py"))
    for kind, image in chosen.items():
        if kind not in kinds:
            raise BadUse(
                f"container.images: there is no kind of stage {kind!r}; choose {', '.join(kinds)}"
            )
        if image not in IMAGES:
            raise _no_image(image)


def _no_image(name: str) -> BadUse:
    return BadUse(f"container.images: there is no image {name!r}; choose {', '.join(IMAGES)}")


def archive_path(folder: Path, image: Image) -> Path:
    """Where an image's archive lies in the folder of images."""
    return folder / f"{image.name}-{(image.manifest or '')[7:19]}.tar"


def locked(images: Mapping[str, Image], name: str) -> Image:
    """The image of this name, with its digest.

    Raises:
        BadUse: no such image, or it is not locked, or was for other parts.
    """
    if name not in images:
        raise _no_image(name)
    if images[name].manifest is None:
        raise BadUse(
            f"image {name} has no digest in containers/images.lock, so no stage can be named by "
            f"it; build it and run `instella image lock {name}`"
        )
    if images[name].made_of != made_of(name):
        raise BadUse(
            f"image {name} was locked for other locks or another Dockerfile than those that are "
            f"here; run `instella image lock {name}`"
        )
    return images[name]


def require_lock(name: str, folder: Path = FOLDER) -> Path:
    """The lock of the Python packages that an image adds to its base.

    Raises:
        BadUse: there is none, so what would be installed is not known.
    """
    shared = _ENVIRONMENTS.get(name)
    path = folder.parent / shared if shared else folder / name / "requirements.lock"
    if not path.is_file():
        how = (
            "requirements/README.md says how a lock is made"
            if shared
            else f"make it with `instella image lock {name} --packages`"
        )
        raise BadUse(
            f"image {name}: {shared or path.name} is missing, so what it would hold is not known; "
            f"{how}"
        )
    return path


def made_of(name: str, folder: Path = FOLDER) -> str:
    """SHA-256 over all that says what goes into an image; comments of its Dockerfile don't."""
    files = list((folder / name).glob("*.lock"))
    if name in CPU_IMAGES:
        files.append(folder / CPU / "debian.lock")
    if name in _ENVIRONMENTS:
        files.append(require_lock(name, folder))
    text = (folder / name / "Dockerfile").read_text(encoding="utf-8")
    lines = "".join(f"{line}\n" for _, line in instructions(text))
    parts = {path.name: sha256_file(path) for path in files}
    parts["Dockerfile"] = sha256_bytes(lines.encode("utf-8"))
    if name in CPU_IMAGES:
        parts["run.lock"] = lock_hash()
    return sha256_bytes(json_bytes(parts))
