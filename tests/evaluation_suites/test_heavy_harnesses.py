"""Images of the harnesses behind the published scores: pins, refusals, docker's command line."""

import shutil

import pytest
from suites_helpers import FOLDER as PUBLISHED

from instella.containers.images import Image, read_images
from instella.containers.policy import dockerfile_faults
from instella.errors import BadUse, VerificationError
from instella.evaluation.heavy import (
    FOLDER,
    LOCK,
    container_line,
    read_harnesses,
    require_pinned,
)
from instella.evaluation.suites import command_line, image_of, read_suites

IMAGE = "sha256:" + "a" * 64
VALUES = {"model": "/data/a model", "output": "/data/out", "hub": "/data/hub", "batch": "8",
          "model_args": "{}", "name": "ours"}  # fmt: skip


def test_folders_keep_the_rules_of_every_image():
    """FastChat's lacks its commit, and that is all that is wrong with it."""
    base = read_images()["rocm-train"]
    for name, harness in read_harnesses().items():
        folder = FOLDER / name
        assert len((folder / "README.md").read_text().splitlines()) == 4
        image = Image(name, base.base, base.base_digest, None, None, ())
        text = (folder / "Dockerfile").read_text()
        wanted = f"ARG {harness.program.upper()}" + (f"={harness.commit}" if harness.commit else "")
        assert f"\n{wanted}\n" in text
        found = dockerfile_faults(folder / "Dockerfile", image)
        missing = [] if harness.commit else [f"{harness.program.upper()} is not a full commit"]
        assert [line.rpartition(": ")[2] for line in found] == missing


def test_suites_and_lock_name_the_same_commits():
    suites, harnesses = read_suites(PUBLISHED), read_harnesses()
    for name in ("base", "instruct"):
        assert harnesses[suites[name].image].named == suites[name].commit
    task = suites["instruct"].tasks["MT-Bench"]
    assert f"FastChat at {harnesses['rocm-fastchat'].named};" in task.note
    used = {suite.image for suite in suites.values()} | {
        task.image for suite in suites.values() for task in suite.tasks.values() if task.image
    }
    assert used == {*harnesses, "none"}


def test_nothing_is_rendered_that_is_not_pinned(tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "containers")
    olmes, fastchat = (read_harnesses(folder)[name] for name in ("rocm-olmes", "rocm-fastchat"))
    with pytest.raises(BadUse, match="FastChat is known by 1ffd4a6 only, which pins nothing"):
        require_pinned(fastchat, folder)
    with pytest.raises(BadUse, match=r"rocm-olmes: requirements\.lock is missing"):
        require_pinned(olmes, folder)
    (folder / "rocm-olmes" / "requirements.lock").write_text("")
    with pytest.raises(BadUse, match="no image; build it with `docker build --build-arg OLMES=38a"):
        require_pinned(olmes, folder)
    text = (folder / LOCK).read_text()
    (folder / LOCK).write_text(text.replace('"image":null', f'"image":"{IMAGE}"'))
    assert require_pinned(read_harnesses(folder)["rocm-olmes"], folder) == IMAGE


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("harnesses/1", "harnesses/2", "expected instella.harnesses/1"),
        ('"commit":null', '"commit":"1ffd4a6"', "is not forty digits that begin 1ffd4a6"),
        ('"commit":null', f'"commit":"{"0" * 40}"', "is not forty digits that begin 1ffd4a6"),
        ('"commit":null', '"comit":null', "expected commit, image, named, program"),
        ('"image":null', '"image":"sha256:12"', "is no sha256 digest"),
    ],
)
def test_a_lock_that_pins_nothing_is_refused(tmp_path, old, new, words):
    text = (FOLDER / LOCK).read_text()
    assert old in text
    (tmp_path / LOCK).write_text(text.replace(old, new))
    with pytest.raises(VerificationError, match=words):
        read_harnesses(tmp_path)


def test_the_command_line_of_docker():
    suites = read_suites(PUBLISHED)
    words = command_line(suites["base"], ("ARC-Easy",), VALUES)
    assert container_line(IMAGE, words, VALUES, (1000, 100)) == [
        "docker", "run", "--rm", "--init", "--user", "1000:100", "--read-only",
        "--tmpfs", "/tmp", "--cap-drop", "ALL", "--device", "/dev/kfd", "--device", "/dev/dri",
        "--group-add", "video", "--group-add", "render", "--ipc", "host",
        "--security-opt", "seccomp=unconfined", "--env", "HF_HOME=/hub", "--env", "HOME=/tmp",
        "--volume", "/data/a model:/model:ro", "--volume", "/data/out:/output",
        "--volume", "/data/hub:/hub", IMAGE,
        "olmes", "--model", "/model", "--task", "arc_easy::olmo1", "--batch-size", "8",
        "--output-dir", "/output", "--model-args", "{}",
    ]  # fmt: skip
    to_file = VALUES | {"output": "/data/out/answers.jsonl"}
    words = command_line(suites["instruct"], ("MT-Bench",), to_file)
    line = container_line(IMAGE, words, to_file, (0, 0))
    assert "/data/out:/output" in line and line[-1] == "/output/answers.jsonl"
    assert line[line.index(IMAGE) + 1 :][:5] == [
        "python", "-m", "fastchat.llm_judge.gen_model_answer", "--model-path", "/model",
    ]  # fmt: skip


@pytest.mark.parametrize("folder", ["", "out", "/a:b"])
def test_a_folder_that_docker_would_read_otherwise_is_refused(folder):
    with pytest.raises(BadUse, match="give a folder by its full path"):
        container_line(IMAGE, [], VALUES | {"output": folder}, (0, 0))


def test_the_image_of_a_suite():
    suites = read_suites(PUBLISHED)
    assert image_of(suites["base"], ("MMLU",)) == "rocm-olmes"
    assert image_of(suites["instruct"], ("MT-Bench",)) == "rocm-fastchat"
    with pytest.raises(BadUse, match="no image of the kit holds it; omit --image"):
        image_of(suites["math"], ("AIME24",))
