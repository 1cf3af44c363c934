"""``instella image build|verify|run|lock|parts NAME``."""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from instella.commands.common import add_parser
from instella.containers.images import (
    CPU,
    CPU_IMAGES,
    DEBIAN_LOCK,
    FOLDER,
    IMAGES,
    IMAGES_FOLDER,
    Image,
    locked,
    read_images,
    write_images,
)
from instella.errors import BadUse, VerificationError
from instella.progress import Reporter
from instella.recipe.reader import read_placement
from instella.recipe.settings import Container

ENGINES = ("docker", "podman")


def register(subparsers: Any) -> None:
    """Add ``image`` with its actions."""
    parser = subparsers.add_parser("image", help="build, check and try the images of containers/")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    build = _action(actions, "build", "build an image, and load it into an engine", run_build)
    build.add_argument("--load", choices=ENGINES, help="engine that gets it")
    _action(actions, "verify", "build an image again and compare it with the lock", run_verify)
    trial = _action(actions, "run", "run a command in an image, walled in like a stage", run_trial)
    trial.add_argument("--engine", choices=ENGINES, default="docker")
    trial.add_argument("--accel", choices=("none", "rocm", "cuda"), default="none")
    trial.add_argument(
        "words", nargs="+", metavar="WORD", help="command; after -- if it has options"
    )
    _action(actions, "parts", "print an image's list of parts (CycloneDX JSON)", run_parts)
    lock = _action(actions, "lock", "pin what an image is made of, and its digests", run_lock)
    lock.add_argument(
        "--packages", action="store_true", help="first take the newest packages that fit"
    )


def _action(actions: Any, name: str, help_text: str, function: Any) -> argparse.ArgumentParser:
    parser = add_parser(actions, name, help_text)
    parser.add_argument("image", choices=IMAGES, metavar="NAME", help=", ".join(IMAGES))
    parser.set_defaults(run=function)
    return parser


def run_build(args: argparse.Namespace) -> int:
    """Build; print digests, archive and list of parts.

    Raises:
        BadUse: a pin is missing.
        VerificationError: the digests are not those of the lock, or the image breaks a rule of
            ``instella/containers/policy.py``.
    """
    from instella.containers import loading, rocm, sbom
    from instella.containers.build import build

    downloads = _downloads(args)
    folder = downloads / IMAGES_FOLDER
    if args.image not in CPU_IMAGES:
        if args.load == "podman":
            raise BadUse(f"image {args.image} is built by docker and stays there; omit --load")
        image = read_images()[args.image]
        print(f"config   {rocm.build(image, tell)}")
        folder.mkdir(parents=True, exist_ok=True)
        parts = folder / f"{image.name}.cdx.json"
        parts.write_bytes(sbom.cyclonedx(image))
        print(f"parts    {parts}")
        return 0
    result = build(args.image, downloads, folder, tell)
    if args.load is not None:
        tell(f"loading it into {args.load}")
        loading.load(result.image, result.archive, args.load)
    print(f"manifest {result.image.manifest}\nconfig   {result.image.config}")
    print(f"archive  {result.archive}\nparts    {result.parts}")
    _compare(result.image)
    return 0


def run_verify(args: argparse.Namespace) -> int:
    """Build again from nothing but fetched packages, and compare with ``images.lock``.

    Raises:
        VerificationError: a digest differs, or the image breaks a rule of
            ``instella/containers/policy.py``.
    """
    from instella.containers import rocm
    from instella.containers.build import build

    expected = locked(read_images(), args.image)
    downloads = _downloads(args)
    if args.image not in CPU_IMAGES:
        rocm.verify(expected)
    else:
        folder = downloads / IMAGES_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".verify-") as place:
            _compare(build(args.image, downloads, Path(place), tell).image)
    print(f"{args.image}: as containers/images.lock says")
    return 0


def run_trial(args: argparse.Namespace) -> int:
    """Run a command in an image, with no network and no folder but the project's code."""
    from instella.containers.engines import run_plan
    from instella.containers.walls import plan_command

    image = locked(read_images(), args.image)
    container = Container(engine=args.engine, accel=args.accel)
    plan = plan_command(f"instella-run-{os.getpid()}", image, container, tuple(args.words))
    run_plan(plan, container.engine, Reporter(image.name), _downloads(args) / IMAGES_FOLDER)
    return 0


def run_parts(args: argparse.Namespace) -> int:
    """Print the list of an image's parts, which its locks give without a build."""
    from instella.containers import sbom

    sys.stdout.write(sbom.cyclonedx(read_images()[args.image]).decode())
    return 0


def run_lock(args: argparse.Namespace) -> int:
    """Renew an image's part of ``containers/images.lock``."""
    from instella.containers import debian, requirements, rocm
    from instella.containers.build import build

    images = read_images()
    downloads = _downloads(args)
    if args.packages and args.image == CPU:
        tell("asking apt's mirrors for the versions of today")
        debian.write_debian_lock(debian.resolve(downloads / "debian"), DEBIAN_LOCK)
    elif args.packages:
        sources = sorted((FOLDER / args.image).glob("*.in"))
        if not sources:
            raise BadUse(f"image {args.image} has no packages of its own to choose; see its README")
        tell("asking pip for versions that fit")
        for source in sources:
            requirements.resolve(source, FOLDER.parent)
    if args.image in CPU_IMAGES:
        images[args.image] = build(args.image, downloads, downloads / IMAGES_FOLDER, tell).image
    else:
        images[args.image] = rocm.lock(images[args.image], tell)
    write_images(images)
    print(f"containers/images.lock: {args.image} {images[args.image].manifest or 'has its base'}")
    return 0


def tell(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr)


def _downloads(args: argparse.Namespace) -> Path:
    return Path(read_placement(args.config, recipe=args.recipe_file).downloads).absolute()


def _compare(image: Image) -> None:
    expected = read_images()[image.name]
    for what in ("made_of", "layers", "config", "manifest"):
        if getattr(image, what) != getattr(expected, what):
            raise VerificationError(
                f"image {image.name}: {what}: expected {_shown(getattr(expected, what))}, built "
                f"{_shown(getattr(image, what))}; if requirements/run.lock or debian.lock changed, "
                f"run `instella image lock {image.name}`"
            )


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
