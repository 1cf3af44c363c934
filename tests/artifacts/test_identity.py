"""Identity: what changes it, and that nothing else does."""

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from instella.artifacts.code import CodeIndex
from instella.artifacts.identity import (
    PACKAGE_FOLDER,
    Toolchain,
    environment_lock,
    fingerprint,
    identity,
    identity_key,
    lock_hash,
    settings_json,
)
from instella.errors import BadUse
from instella.recipe.graph import Stage

from .toy import Cut, make_graph, make_tree

INPUT = {"text": "0" * 64}


def toolchain(folder: Path, **changes: Any) -> Toolchain:
    package = make_tree(folder)
    lock = lock_hash(folder / "requirements" / "run.lock")
    return dataclasses.replace(Toolchain(CodeIndex(package), lock, "portable-x86"), **changes)


def words(**settings: Any) -> Stage:
    return dataclasses.replace(make_graph()["words"], settings=settings)


def test_swapped_settings_differ(tmp_path: Path) -> None:
    tools = toolchain(tmp_path)
    keys = {
        identity_key(identity(words(cut=Cut(length=a, start=b)), tools, INPUT))
        for a, b in ((1, 2), (2, 1))
    }
    assert len(keys) == 2
    assert fingerprint(words(a=1, b=2), tools) != fingerprint(words(a=2, b=1), tools)


def test_defaults_and_container_types_are_canonical() -> None:
    plain = settings_json(words(cut=Cut(3), pair=(1, 2), table={"b": 1.5, "a": None}))
    assert plain == {
        "cut": {"length": 3, "start": 0},
        "pair": [1, 2],
        "table": {"b": 1.5, "a": None},
    }


@pytest.mark.parametrize(
    "value",
    [{1, 2}, Path("a"), b"x", float("nan"), float("inf"), object(), {1: 2}, Cut, [{"a": {3}}]],
)
def test_settings_without_canonical_form_are_refused(value: Any) -> None:
    with pytest.raises(BadUse, match=r"words\.bad"):
        settings_json(words(bad=value))


def test_each_part_of_the_identity_counts(tmp_path: Path) -> None:
    tools = toolchain(tmp_path)
    stage = make_graph()["words"]
    base = identity_key(identity(stage, tools, INPUT))
    changed = [
        identity(dataclasses.replace(stage, name="other"), tools, INPUT),
        identity(stage, dataclasses.replace(tools, lock="1" * 64), INPUT),
        identity(stage, dataclasses.replace(tools, images={stage.name: "sha256:1"}), INPUT),
        identity(stage, dataclasses.replace(tools, numerics="native-cpu"), INPUT),
        identity(stage, tools, {"text": "1" * 64}),
    ]
    assert len({base, *map(identity_key, changed)}) == 6


def test_an_environment_beside_the_kits_own_counts_with_its_lock(tmp_path: Path) -> None:
    tools = toolchain(tmp_path)
    plain = identity(words(rollout="own"), tools, INPUT)
    assert "environments" not in plain
    other = identity(words(rollout="vllm"), tools, INPUT)
    assert other.pop("environments") == {"vllm": lock_hash(environment_lock("vllm"))}
    assert other == {**plain, "settings": {"rollout": "vllm"}}
    assert other["lock"] == tools.lock


def test_fingerprint_sees_everything_but_the_content_of_inputs(tmp_path: Path) -> None:
    tools = toolchain(tmp_path)
    stage = make_graph()["words"]
    base = fingerprint(stage, tools)
    others = [
        fingerprint(dataclasses.replace(stage, inputs={"text": "side"}), tools),
        fingerprint(stage, dataclasses.replace(tools, lock="1" * 64)),
        fingerprint(words(cut=Cut(8)), tools),
    ]
    (tmp_path / "instella" / "helper.py").write_text("FACTOR = 9\n")
    others.append(
        fingerprint(stage, Toolchain(CodeIndex(tmp_path / "instella"), tools.lock, "portable-x86"))
    )
    assert len({base, *others}) == 5


def test_inputs_must_match_the_roles(tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="needs inputs"):
        identity(make_graph()["words"], toolchain(tmp_path), {})


def test_lock_comments_and_blank_lines_do_not_count(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in "abc")
    one.write_text("a==1 \\\n    --hash=sha256:11\nb @ https://x/y#sha256=22\n")
    two.write_text(
        "# top\n\na==1 \\\n    --hash=sha256:11\n    # via z\nb @ https://x/y#sha256=22  # why\n\n"
    )
    three.write_text("a==1 \\\n    --hash=sha256:11\nb @ https://x/y#sha256=33\n")
    assert lock_hash(one) == lock_hash(two) != lock_hash(three)


def test_missing_lock_is_one_clear_line(tmp_path: Path) -> None:
    copy_package(tmp_path)
    (tmp_path / "requirements" / "run.lock").unlink()
    done = python(tmp_path, "from instella.artifacts.identity import lock_hash; lock_hash()")
    assert "run.lock: no lock file" in done.stderr.decode().splitlines()[-1]


def copy_package(folder: Path) -> None:
    """The real artifacts code with a toy stage, as a clone elsewhere."""
    make_tree(folder)
    for name in ("artifacts", "recipe"):
        shutil.copytree(PACKAGE_FOLDER / name, folder / "instella" / name)
    for name in ("canonical.py", "errors.py", "progress.py", "numerics.py"):
        shutil.copy(PACKAGE_FOLDER / name, folder / "instella" / name)


def python(folder: Path, script: str, cwd: Path | None = None, **env: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(folder), **env}
    return subprocess.run(
        [sys.executable, "-c", script], cwd=cwd or folder, env=environment, capture_output=True
    )


def test_identity_is_equal_in_other_processes_folders_and_hash_seeds(tmp_path: Path) -> None:
    script = (
        "from instella.artifacts.identity import *\n"
        "from instella.recipe.graph import Stage\n"
        "from instella.recipe.settings import Part\n"
        "part = Part('a', 'b', options={k: 1 for k in {'x', 'y', 'z'}})\n"
        "stage = Stage('words', 'toy', {'part': part, 'more': (1, 0.1)}, {'text': 'source'})\n"
        "tools = Toolchain.here('portable-x86')\n"
        "print(fingerprint(stage, tools), identity_key(identity(stage, tools, {'text': '0' * 64})))\n"
    )
    answers = set()
    for number, seed in enumerate(("0", "1", "77")):
        folder = tmp_path / f"clone {number}" / ("deep" * number)
        folder.mkdir(parents=True)
        copy_package(folder)
        done = python(
            folder, script, cwd=tmp_path, PYTHONHASHSEED=seed, TZ=f"UTC-{number}", LC_ALL="C"
        )
        assert done.returncode == 0, done.stderr.decode()
        answers.add(done.stdout)
    assert len(answers) == 1
