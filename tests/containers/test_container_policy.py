"""Every rule of the policy holds for the shipped images, and finds what breaks it."""

import io
import shutil
import subprocess
import sysconfig
import tarfile
from pathlib import Path

import pytest

from instella.containers import policy
from instella.containers.build import build
from instella.containers.images import CPU_IMAGES, FOLDER, IMAGES, Image, read_images
from instella.containers.policy import archive_faults, dockerfile_faults, faults, require_clean
from instella.errors import VerificationError

DIGEST = f"sha256:{'0' * 64}"
BASE = Image("rocm-train", "docker.io/a/b:v1", DIGEST, None, None, ())
FROM = f"FROM docker.io/a/b:v1@{DIGEST}\n"
FETCH = "RUN git init x && git -C x fetch --depth 1 https://example.org/x.git "


def test_the_shipped_images_keep_every_rule() -> None:
    assert faults(FOLDER, read_images()) == []


def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    if program is None:
        pytest.skip("hadolint is not installed; it comes with requirements/test.lock")
    for path in sorted(FOLDER.glob("*/Dockerfile")):
        done = subprocess.run([program, str(path)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), path


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("FROM docker.io/a/b:v1\n", "not pinned by tag and digest"),
        (f"FROM docker.io/a/b@{DIGEST}\n", "not pinned by tag and digest"),
        (f"FROM docker.io/a/b:latest@{DIGEST}\n", "not pinned by tag and digest"),
        (f"FROM docker.io/a/c:v1@{DIGEST}\n", "not the one of images.lock"),
        (f"ARG BASE=docker.io/a/b\nFROM ${{BASE}}@{DIGEST}\n", "not pinned by tag and digest"),
        (FROM + "RUN pip install x==1\n", "pip without --require-hashes"),
        (FROM + "RUN pip install \\\n  --require-hashes -r x\n", "pip without --no-deps"),
        (FROM + "RUN pip install --no-deps --no-index ./x\n", "tools that nothing pins"),
        (FROM + "RUN pip uninstall -y torch\n", "pip uninstall"),
        (FROM + "RUN sed -i s/a/b/ /usr/lib/python3/dist-packages/x.py\n", "sed edits"),
        (FROM + "RUN git clone https://example.org/x.git\n", "git clone takes a moving branch"),
        (FROM + 'ARG X=main\n' + FETCH + '"${X}"\n', "X is not a full commit"),
        (FROM + "ADD https://example.org/x /x\n", "fetches a file that nothing checks"),
        (FROM + "RUN curl -O https://example.org/x\n", "fetches a file that nothing checks"),
        (FROM + "ENV HF_TOKEN=abc\n", "a secret in the image's history"),
        (FROM + "LABEL of=latest\n", "names latest"),
        (FROM + "USER 1:1\nUSER root\n", "the last USER is root"),
        (FROM + "USER 0:0\n", "the last USER is 0:0"),
    ],
)  # fmt: skip
def test_each_rule_finds_its_fault(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    assert any(fault in line for line in dockerfile_faults(tmp_path / "Dockerfile", BASE))


def test_pinned_lines_pass(tmp_path: Path) -> None:
    text = (
        f'ARG BASE=docker.io/a/b:v1@{DIGEST}\nFROM ${{BASE}}\nARG X={"1" * 40}\n{FETCH}"${{X}}"\n'
        "RUN pip install --no-deps --require-hashes -r x.lock\nUSER 0:0\nUSER 10001:10001\n"
    )
    (tmp_path / "Dockerfile").write_text(text)
    assert dockerfile_faults(tmp_path / "Dockerfile", BASE) == []


def test_unhashed_requirements_are_found(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER, tmp_path / "containers")
    (folder / "rocm-eval" / "requirements.lock").write_text("# head\nx==1\n")
    (folder / "cpu" / "README.md").unlink()
    found = faults(folder, read_images())
    assert len(found) == 2
    assert found[0].endswith("README.md: missing")
    assert found[1].endswith("requirements.lock:2: expected NAME==VERSION --hash=sha256:HEX")


@pytest.mark.parametrize("name", IMAGES)
def test_a_build_refuses_a_folder_that_breaks_a_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = shutil.copytree(FOLDER, tmp_path / "containers")
    monkeypatch.setattr(policy, "FOLDER", folder)
    policy.require_rules(name)
    (folder / name / "README.md").unlink()
    with pytest.raises(VerificationError, match=r"README\.md: missing; correct it"):
        policy.require_rules(name)
    if name in CPU_IMAGES:
        with pytest.raises(VerificationError, match=r"README\.md: missing; correct it"):
            build(name, tmp_path / "downloads", tmp_path / "images", print)
        assert not (tmp_path / "images").exists()


def test_secrets_and_names_in_layers_are_found(tmp_path: Path) -> None:
    layer = io.BytesIO()
    files = {
        "root/.netrc": b"",
        "etc/host": b"made on buildbox",
        "etc/key": b"hf_" + b"a" * 34 + b"\n",
        "usr/tests/key": b"hf_" + b"a" * 34 + b"\n",
    }
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    blobs = {
        "manifest.json": b'[{"Config": "blobs/c", "Layers": ["blobs/l"]}]',
        "blobs/c": b'{"config": {"Env": ["TOKEN=hf_' + b"a" * 34 + b'"]}}',
        "blobs/l": layer.getvalue(),
    }
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        for name, data in blobs.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    with pytest.raises(VerificationError, match=r"image.tar: configuration.*\(and 3 more\)"):
        require_clean(tmp_path / "image.tar", ("buildbox",))
    assert archive_faults(tmp_path / "image.tar", ("buildbox",)) == [
        "configuration: looks like a secret",
        "root/.netrc: a file for secrets",
        "etc/host: holds 'buildbox'",
        "etc/key: looks like a secret",
    ]
