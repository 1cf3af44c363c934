"""The hub: the real client against a small server on the loopback device."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from instella.canonical import sha256_bytes, write_json
from instella.data.sources import fetch
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Source

from .conftest import Hub

SCRIPT = """
import json, sys
from pathlib import Path
from instella.data.sources import fetch, hub
from instella.errors import KitError
from instella.recipe.settings import Source
hub.RETRY_AFTER_SECONDS = (0.05, 0.05)
folder, downloads, recipe_folder, source = sys.argv[1:]
Path(folder).mkdir()
try:
    fetch(Source(**json.loads(source)), Path(folder), Path(downloads), Path(recipe_folder), print)
except KitError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""

FILES = {
    "data/a.jsonl": b'{"text":"one"}\n',
    "data/b.jsonl": b'{"text":"two"}\n',
    "README.md": b"#",
}


def lock_of(files: dict[str, bytes]) -> dict[str, Any]:
    return {name: {"sha256": sha256_bytes(data), "size": len(data)} for name, data in files.items()}


def get(hub: Hub, tmp_path: Path, name: str = "out", **environment: str) -> Any:
    write_json(tmp_path / "lock.json", lock_of(FILES))
    source = {
        "kind": "hub", "licence": "MIT", "repository": "owner/name", "revision": hub.commit,
        "files": ["data/*.jsonl"], "lock": "lock.json",
    }  # fmt: skip
    environment = {
        **os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(tmp_path / "home"), **environment,
    }  # fmt: skip
    places = [str(tmp_path / name), str(tmp_path / "downloads"), str(tmp_path)]
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *places, json.dumps(source)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def files_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_wanted_files_then_the_cache_even_offline(hub: Hub, tmp_path: Path) -> None:
    hub.files.update(FILES)
    hub.busy["data/a.jsonl"] = 2
    done = get(hub, tmp_path)
    assert done.returncode == 0, done.stderr
    wanted = {name: data for name, data in FILES.items() if name != "README.md"}
    assert files_of(tmp_path / "out") == wanted
    assert hub.gets == ["data/a.jsonl"] * 3 + ["data/b.jsonl"]
    done = get(hub, tmp_path, "again", HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "again") == wanted
    assert len(hub.gets) == 4


def test_a_body_of_the_right_size_with_other_content(hub: Hub, tmp_path: Path) -> None:
    hub.files.update(FILES)
    hub.files["data/b.jsonl"] = b'{"text":"tWo"}\n'
    done = get(hub, tmp_path)
    assert done.returncode == 4
    assert sha256_bytes(FILES["data/b.jsonl"]) in done.stderr
    assert sha256_bytes(hub.files["data/b.jsonl"]) in done.stderr
    assert len(done.stderr.splitlines()) == 1
    kept = [path.name for path in (tmp_path / "downloads").rglob("b.jsonl*") if path.is_file()]
    assert "b.jsonl.bad" in kept and "b.jsonl" not in kept
    assert "data/b.jsonl" not in files_of(tmp_path / "out")
    hub.files["data/b.jsonl"] = FILES["data/b.jsonl"]
    assert get(hub, tmp_path, "mended").returncode == 0


def test_lasting_trouble_is_one_line(hub: Hub, tmp_path: Path) -> None:
    hub.files.update(FILES)
    hub.busy["data/a.jsonl"] = 99
    done = get(hub, tmp_path)
    assert done.returncode == 4
    assert hub.gets == ["data/a.jsonl"] * 3
    assert "cannot fetch owner/name/data/a.jsonl" in done.stderr
    del hub.files["data/a.jsonl"]
    assert get(hub, tmp_path, "missing").returncode == 4
    offline = get(hub, tmp_path, "offline", HF_HUB_OFFLINE="1")
    assert offline.returncode == 4 and "HF_HUB_OFFLINE" in offline.stderr
    assert len(offline.stderr.splitlines()) == 1


def in_process(tmp_path: Path, **changes: Any) -> None:
    fields = {"repository": "owner/name", "revision": "0" * 40, "lock": "lock.json", **changes}
    source = Source(kind="hub", licence="MIT", **fields)
    fetch(source, tmp_path, tmp_path / "downloads", tmp_path, print)


def test_what_is_not_pinned_is_refused_with_the_way_to_pin_it(tmp_path: Path) -> None:
    with pytest.raises(BadUse, match="no revision is pinned; put the commit"):
        in_process(tmp_path, revision=None)
    with pytest.raises(BadUse, match="40 lower-case hex"):
        in_process(tmp_path, revision="main")
    with pytest.raises(BadUse, match="no lock file is named"):
        in_process(tmp_path, lock=None)
    with pytest.raises(BadUse, match="no such lock file"):
        in_process(tmp_path)


@pytest.mark.parametrize(
    "lock",
    [
        [], {},
        {"../evil": {"sha256": "0" * 64, "size": 1}},
        {"/etc/evil": {"sha256": "0" * 64, "size": 1}},
        {"a": {"sha256": "0" * 64}},
        {"a": {"sha256": "0" * 64, "size": True}},
        {"a": {"sha256": 5, "size": 1}},
    ],
)  # fmt: skip
def test_a_malformed_lock(lock: Any, tmp_path: Path) -> None:
    write_json(tmp_path / "lock.json", lock)
    with pytest.raises(VerificationError):
        in_process(tmp_path)
