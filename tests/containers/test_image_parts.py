"""What an image is made of, as its Dockerfile, its locks and its list of parts say it."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from engine_helpers import Docker, small_image

from instella.containers import images, loading
from instella.containers.dockerfiles import read_assembly
from instella.containers.images import CPU_IMAGES, FOLDER, IMAGES, made_of, read_images
from instella.containers.sbom import cyclonedx
from instella.containers.walls import OTHER_USER
from instella.containers.wheelhouse import EXTRA_SITE, SITE, sites
from instella.errors import BadUse, VerificationError
from instella.prove.copies import PROJECT

HASH = f"--hash=sha256:{'a' * 64}"


@pytest.fixture
def with_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of images in which no lock is missing; returns the one of verl."""
    folder = tmp_path / "containers"
    subprocess.run(["cp", "-a", str(FOLDER), str(folder)], check=True)
    verl = tmp_path / "requirements" / "environments" / "verl.lock"
    verl.parent.mkdir(parents=True)
    run = (PROJECT / "requirements" / "run.lock").read_text(encoding="utf-8")
    (numpy,) = re.findall(r"(?m)^numpy==(?:.|\n    )*", run)
    verl.write_text(
        f"--no-binary verl\n{numpy}\nverl==0.9.1 \\\n    {HASH}\ntransformers==5.10.4 {HASH}\n"
    )
    (folder / "rocm-verl" / "requirements.lock").write_text(f"ray==2.58.0 {HASH}\n")
    for module in ("images", "sbom"):
        monkeypatch.setattr(f"instella.containers.{module}.FOLDER", folder)
    for function in (images.require_lock, images.made_of):
        monkeypatch.setattr(function, "__defaults__", (folder,))
    return verl


def test_the_dockerfiles_of_the_cpu_images_say_layers_variables_and_user() -> None:
    cpu, verl = (read_assembly(FOLDER / name / "Dockerfile") for name in CPU_IMAGES)
    assert cpu.layers == ("lower.tar", "upper.tar")
    assert verl.layers == (*cpu.layers, "extra.tar")
    assert (verl.environment, verl.user) == (cpu.environment, cpu.user)
    assert cpu.user == f"{OTHER_USER}:{OTHER_USER}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("ADD a.tar /\n", "expected FROM scratch as the first"),
        ("FROM scratch\nRUN true\n", ":2: expected ADD FILE /, ENV or USER by number"),
        ("FROM scratch\nADD a.tar /opt\n", "found 'ADD a.tar /opt'"),
        ("FROM scratch\nUSER stage\n", "found 'USER stage'"),
        ("FROM scratch\nENV A=1 B\n", "found 'ENV A=1 B'"),
    ],
)
def test_what_the_kit_would_leave_out_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    with pytest.raises(VerificationError, match=re.escape(fault)):
        read_assembly(tmp_path / "Dockerfile")


def test_dockers_own_builder_makes_the_same_image(docker: Docker, tmp_path: Path) -> None:
    """Of the same Dockerfile: variables, user and files, though not the same layers."""
    image, archive = small_image(tmp_path)
    loading.load(image, archive, "docker")
    shutil.copy(FOLDER / "cpu" / "Dockerfile", tmp_path)
    other = docker.call("build", "--quiet", str(tmp_path)).stdout.strip()
    assert other != image.config
    seen = []
    for name in (str(image.config), other):
        told = json.loads(docker.call("inspect", "--format", "{{json .Config}}", name).stdout)
        container = docker.call("create", "--network=none", name, "/bin/program").stdout.strip()
        docker.call("export", "--output", str(tmp_path / "files.tar"), container)
        with tarfile.open(tmp_path / "files.tar") as files:
            listed = {(item.name, item.mode, item.size, item.uid) for item in files}
        seen.append((set(told["Env"]), told["User"], listed))
    assert seen[0] == seen[1]
    assert {"bin/program", "etc/about"} <= {item[0] for item in seen[0][2]}


def test_a_changed_dockerfile_is_another_image(with_locks: Path) -> None:
    before = {name: made_of(name) for name in IMAGES}
    for name in IMAGES:
        dockerfile = with_locks.parents[2] / "containers" / name / "Dockerfile"
        dockerfile.write_text(dockerfile.read_text() + "ENV A=1\n")
        assert made_of(name) != before[name]
    changed = made_of("cpu-verl")
    with_locks.write_text(with_locks.read_text() + f"x==1 {HASH}\n")
    assert made_of("cpu-verl") != changed


def test_cpu_verl_holds_what_its_lock_has_otherwise(with_locks: Path) -> None:
    base, extra = sites("cpu-verl")
    assert (base.folder, extra.folder, extra.lock) == (SITE, EXTRA_SITE, "verl.lock")
    assert base == sites("cpu")[0]
    assert set(extra.packages) == {"verl", "transformers"}
    assert extra.source_only == f"{base.source_only},verl"
    with_locks.write_text("verl==0.9.1\n")
    with pytest.raises(VerificationError, match=r"verl\.lock: verl has no hash"):
        sites("cpu-verl")
    with_locks.unlink()
    with pytest.raises(BadUse, match=r"requirements/environments/verl\.lock is missing"):
        sites("cpu-verl")


@pytest.mark.parametrize("name", IMAGES)
def test_every_image_has_a_list_of_its_parts(with_locks: Path, name: str) -> None:
    data = cyclonedx(read_images()[name])
    assert data == cyclonedx(read_images()[name])
    value = json.loads(data)
    assert (value["bomFormat"], value["specVersion"]) == ("CycloneDX", "1.5")
    references = [part["bom-ref"] for part in value["components"]]
    assert len(references) == len(set(references))
    places = {part.get("purl") for part in value["components"]}
    assert set(EXPECTED[name]) <= places
    if name not in CPU_IMAGES:
        assert value["components"][0]["version"] == read_images()[name].base_digest


EXPECTED = {
    "cpu": ["pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64&distro=bookworm"],
    "cpu-verl": ["pkg:pypi/transformers@5.24.0", "pkg:pypi/transformers@5.10.4"],
    "rocm-train": [
        "pkg:github/dao-ailab/flash-attention@060c9188beec3a8b62b33a3bfa6d5d2d44975fab",
        "pkg:pypi/ninja@1.13.2",
    ],
    "rocm-verl": [
        "pkg:github/vllm-project/vllm@18d87a87dc39c1a50f452b218fdcc3aeec48d18e",
        "pkg:pypi/ray@2.58.0",
    ],
    "rocm-eval": ["pkg:pypi/math-verify@0.9.0"],
}


def test_the_list_is_printed_without_a_build() -> None:
    command = [sys.executable, "-m", "instella", "image", "parts", "cpu"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, check=True)
    assert done.stdout == cyclonedx(read_images()["cpu"])
