"""The lock of images, and which image serves which stage."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from instella.artifacts.identity import Toolchain, fingerprints, identity
from instella.containers.images import (
    IMAGES,
    LOCK,
    Image,
    image_name,
    locked,
    read_images,
    require_lock,
    stage_images,
    write_images,
)
from instella.containers.wheelhouse import SOURCE_ONLY
from instella.errors import BadUse, VerificationError
from instella.prove.copies import PROJECT
from instella.recipe.graph import build_graph
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Container

RECIPE = read_recipe(PROJECT / "recipes" / "nano.yaml")
GRAPH = build_graph(RECIPE)
DOCKER = Container(engine="docker")
FETCHED = {"source_olmo", "source_olmo_eval", "source_code"}


def test_the_shipped_lock_holds_every_image() -> None:
    images = read_images()
    assert set(images) == set(IMAGES)
    assert images["cpu"].manifest is not None and len(images["cpu"].layers) == 2


def test_writing_and_reading_agree(tmp_path: Path) -> None:
    write_images(read_images(), tmp_path / "lock")
    assert read_images(tmp_path / "lock") == read_images()
    assert (tmp_path / "lock").read_bytes() == LOCK.read_bytes()


@pytest.mark.parametrize(
    "text",
    ["{}", '{"format":"instella.images/1"}', '{"format":"instella.images/1","images":{"cpu":{}}}'],
)
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock").write_text(text)
    with pytest.raises(VerificationError):
        read_images(tmp_path / "lock")


def test_a_short_digest_is_refused(tmp_path: Path) -> None:
    digest = read_images()["cpu"].manifest
    assert digest is not None
    (tmp_path / "lock").write_text(LOCK.read_text().replace(digest, digest[:-1]))
    with pytest.raises(VerificationError, match="is no sha256 digest"):
        read_images(tmp_path / "lock")


def test_every_stage_but_the_fetched_sources_runs_in_cpu() -> None:
    names = {name: image_name(stage, RECIPE.numerics, DOCKER) for name, stage in GRAPH.items()}
    assert {name for name, image in names.items() if image is None} == FETCHED
    assert set(names.values()) == {None, "cpu"}


def test_gpu_stages_have_images_of_their_kind() -> None:
    chosen = {stage.kind: image_name(stage, "gfx942", DOCKER) for stage in GRAPH.values()}
    assert (chosen["pretrain"], chosen["policy"]) == ("rocm-train", "rocm-verl")
    assert (chosen["evaluate"], chosen["tokens_text"]) == ("rocm-eval", "cpu")
    other = Container(engine="docker", images={"policy": "cpu-verl"})
    assert image_name(GRAPH["grpo1"], RECIPE.numerics, other) == "cpu-verl"


def test_the_digest_is_part_of_the_identity_and_only_with_an_engine() -> None:
    host = Toolchain.here(RECIPE.numerics)
    assert stage_images(GRAPH, RECIPE.numerics, Container()) == {}
    images = stage_images(GRAPH, RECIPE.numerics, DOCKER)
    inside = Toolchain.here(RECIPE.numerics, images)
    stage = GRAPH["heldout"]
    contents = dict.fromkeys(stage.inputs, "0" * 64)
    assert identity(stage, host, contents)["image"] is None
    assert identity(stage, inside, contents)["image"] == read_images()["cpu"].manifest
    changed = {
        name
        for name, value in fingerprints(GRAPH, inside).items()
        if value != fingerprints(GRAPH, host)[name]
    }
    assert changed == set(GRAPH) - FETCHED


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ({"pretrian": "cpu"}, "no kind of stage 'pretrian'; choose baseline, evaluate, .*pretrain"),
        ({"pretrain": "rocm"}, "no image 'rocm'; choose cpu, cpu-verl"),
    ],
)
def test_a_misspelt_choice_is_refused(images: dict[str, str], words: str) -> None:
    for engine in ("none", "docker"):
        with pytest.raises(BadUse, match=words):
            stage_images(GRAPH, RECIPE.numerics, Container(engine=engine, images=images))


def test_every_kind_may_be_chosen() -> None:
    images = dict.fromkeys(sorted({stage.kind for stage in GRAPH.values()}), "cpu")
    chosen = Container(engine="docker", images=images)
    assert set(stage_images(GRAPH, RECIPE.numerics, chosen)) == set(GRAPH) - FETCHED


def test_an_unlocked_image_names_no_stage() -> None:
    images = {"cpu": Image("cpu", None, None, None, None, ())}
    with pytest.raises(BadUse, match=r"image cpu has no digest in containers/images\.lock"):
        locked(images, "cpu")
    old = {"cpu": dataclasses.replace(read_images()["cpu"], made_of="0" * 64)}
    with pytest.raises(
        BadUse, match=r"cpu was locked for other locks.*run `instella image lock cpu"
    ):
        locked(old, "cpu")
    with pytest.raises(BadUse, match="there is no image 'cpux'"):
        locked(images, "cpux")


def test_a_base_without_digest_is_not_built_on() -> None:
    from instella.containers.rocm import base_reference

    image = read_images()["rocm-train"]
    assert base_reference(image) == f"{image.base}@{image.base_digest}"
    with pytest.raises(BadUse, match=r"has no digest in containers/images\.lock.*image lock rocm"):
        base_reference(dataclasses.replace(image, base_digest=None))


def test_an_image_without_its_own_lock_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(BadUse, match=r"requirements\.lock is missing.*image lock rocm-verl --pack"):
        require_lock("rocm-verl", tmp_path)


def test_the_kit_and_the_images_take_the_same_packages_as_source() -> None:
    """A shell script and a module, neither of which can read the other."""
    text = (PROJECT / "kit").read_text(encoding="utf-8")
    assert f"\nSOURCE_ONLY={SOURCE_ONLY}\n" in text


def test_reading_the_lock_loads_nothing_heavy() -> None:
    code = (
        "import sys, instella.containers.images\n"
        "heavy = {'torch', 'numpy', 'docker', 'requests'} & set(sys.modules)\n"
        "sys.exit(f'{heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True)
