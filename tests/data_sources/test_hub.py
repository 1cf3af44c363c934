"""Sources on the hub: pins, cache, access, tokens, redirects, progress."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instella.canonical import sha256_bytes, write_json
from instella.data.adapters.rows import read_rows
from instella.data.sources import fetch
from instella.data.sources.hub_download import fetch_repository
from instella.data.sources.hub_lock import Lock
from instella.data.sources.hub_progress import ByteProgress, size_text
from instella.errors import BadUse, KitError, VerificationError
from instella.recipe.settings import Source

from .hub_help import data_of, files_of, lock_of, objects_of, quarantine_of, write_lock
from .hub_server import TOKEN, Fault, Hub

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "data/a.jsonl": b'{"text":"one"}\n',
    "data/b b%2F?#ü.jsonl": b'{"text":"two"}\n',
    "data/empty.jsonl": b"",
    "README.md": b"#",
}
WANTED = {name: data for name, data in FILES.items() if name != "README.md"}


def source_of(**changes: Any) -> Source:
    fields = {
        "repository": "owner/name", "revision": "0123456789abcdef" * 2 + "01234567",
        "files": ("data/*.jsonl",), "lock": "locks/l.json", **changes,
    }  # fmt: skip
    return Source(kind="hub", licence="MIT", **fields)


def get(hub: Hub, tmp_path: Path, name: str = "out", lock: Lock | None = None) -> Path:
    write_lock(tmp_path / "locks" / "l.json", lock or lock_of(hub))
    folder = tmp_path / name
    folder.mkdir()
    source = source_of(repository_type=hub.kind.removesuffix("s"))
    fetch(source, folder, tmp_path / "downloads", tmp_path, lambda text: None)
    return folder


@pytest.mark.parametrize("kind", ["datasets", "models"])
@pytest.mark.parametrize("small", [0, 99], ids=["storage", "git"])
def test_wanted_files_then_the_cache(kind: str, small: int, hub: Hub, tmp_path: Path) -> None:
    hub.kind, hub.small = kind, small
    hub.files.update(FILES)
    assert files_of(get(hub, tmp_path)) == WANTED
    assert [hub.ranges(name) for name in FILES] == [[None], [None], [], []]
    assert files_of(get(hub, tmp_path, "again")) == WANTED
    assert [hub.ranges(name) for name in FILES] == [[None], [None], [], []]


def test_bytes_of_another_revision_or_repository_are_not_fetched_again(
    hub: Hub, tmp_path: Path
) -> None:
    hub.files.update({"old.bin": data_of(1000), "same.bin": data_of(1000), "b.bin": data_of(500)})
    lines: list[str] = []
    fetch_repository(lock_of(hub), None, tmp_path, lines.append)
    assert sorted(r.path for r in hub.log if r.side == "storage") in (
        ["b.bin", "old.bin"], ["b.bin", "same.bin"],
    )  # fmt: skip
    hub.log.clear()
    hub.name, hub.commit = "other/place", "f" * 40
    hub.files = {"moved/b.bin": data_of(500), "new.bin": data_of(1000, 1)}
    fetch_repository(lock_of(hub), tmp_path / "out", tmp_path, lines.append)
    assert {r.path for r in hub.log} == {"new.bin"}
    assert files_of(tmp_path / "out") == hub.files


def test_offline_once_fetched(hub: Hub, tmp_path: Path) -> None:
    hub.files.update(FILES)
    get(hub, tmp_path)
    script = """
import sys
from pathlib import Path
from instella.data.sources.hub_download import fetch_repository
from instella.data.sources.hub_lock import read_lock
from instella.errors import KitError
try:
    fetch_repository(read_lock(Path(sys.argv[1])), None, Path(sys.argv[2]), print, sys.argv[3:])
except KitError as error:
    sys.exit(str(error))
assert "huggingface_hub" not in sys.modules, "the cache needs no library"
"""
    command = [sys.executable, "-c", script, "locks/l.json", "downloads"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    hub.log.clear()
    for pattern, text in (("data/*", ""), ("*", "HF_HUB_OFFLINE is set")):
        done = subprocess.run(
            [*command, pattern], cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert text in done.stderr and len(done.stderr.splitlines()) == bool(text), done.stderr
    assert hub.log == []


def test_a_gated_set_says_which_page_to_accept(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files.update(FILES)
    hub.gated, hub.let_in = "auto", TOKEN
    with pytest.raises(KitError, match=r"gated; set HF_TOKEN .*/datasets/owner/name$"):
        get(hub, tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_somebody_else")
    with pytest.raises(KitError, match=r"not been let in: .*/datasets/owner/name$") as caught:
        get(hub, tmp_path, "other")
    assert "hf_somebody_else" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert files_of(get(hub, tmp_path, "third")) == WANTED


def test_the_token_stays_with_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.files["a.bin"] = data_of(1000)
    hub.faults["a.bin"] = [Fault("cut", at=400), Fault("status", 503, times=99)]
    lines: list[str] = []
    with pytest.raises(VerificationError) as caught:
        fetch_repository(lock_of(hub), tmp_path / "out", tmp_path / "d", lines.append)
    assert {r.token for r in hub.log if r.side == "hub"} == {f"Bearer {TOKEN}"}
    assert [r.token for r in hub.log if r.side == "storage"] == [None] * 4
    written = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    for text in (str(caught.value), *lines, *map(repr, written)):
        assert TOKEN not in text and "signature" not in text


def test_credentials_in_the_endpoint_are_not_shown(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = hub.url.rsplit(":", 1)[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://user:secret@127.0.0.1:{port}/")
    hub.files["a.bin"] = data_of(1000)
    lock = lock_of(hub)
    fetch_repository(lock, None, tmp_path / "good", lambda text: None)
    del hub.files["a.bin"]
    with pytest.raises(VerificationError, match="no such file") as caught:
        fetch_repository(lock, None, tmp_path / "bad", lambda text: None)
    assert hub.url in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("file:///etc/passwd", "no known kind"), ("http://h:99999/", "no known kind"),
        ("ftp://127.0.0.1/a", "no known kind"), ("http://[", "no known kind"),
        ("http://..../", "no known kind"), ("http://" + "a" * 99 + "/", "no known kind"),
        ("http://h/" + "a" * 40_000, "no known kind"),
        ("{url}/datasets/owner/name/resolve/{c}/a", "more than 10"),
    ],
)  # fmt: skip
def test_redirects_that_lead_nowhere(location: str, text: str, hub: Hub, tmp_path: Path) -> None:
    hub.small = 99
    hub.files["a"] = b"1"
    place = location.format(url=hub.url, c=hub.commit)
    hub.faults["a"] = [Fault("status", 302, headers={"Location": place}, times=99)]
    with pytest.raises(VerificationError, match=text):
        fetch_repository(lock_of(hub), None, tmp_path, lambda text: None)


def test_a_wait_that_is_no_number_is_passed_over(hub: Hub, tmp_path: Path) -> None:
    hub.files["a.bin"] = data_of(10)
    hub.faults["a.bin"] = [
        Fault("status", 503, headers={"Retry_After": "9" * n}) for n in (400, 5000)
    ]
    fetch_repository(lock_of(hub), None, tmp_path, lambda text: None)
    assert objects_of(tmp_path) == {sha256_bytes(data_of(10))}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"commit": "e" * 40}, "has no revision e{40}"),
        ({"repository": "owner/missing"}, "HTTP 401: no such repository, or a private"),
    ],
)
def test_what_the_hub_does_not_have(
    changes: dict[str, Any], text: str, hub: Hub, tmp_path: Path
) -> None:
    hub.files.update(FILES)
    lock = lock_of(hub, **changes)
    with pytest.raises(KitError, match=text) as caught:
        fetch_repository(lock, None, tmp_path, lambda line: None)
    assert "\n" not in str(caught.value)


def test_no_network(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    hub.files.update(FILES)
    with pytest.raises(VerificationError, match=r"ConnectError from http://.*:1, 4 times"):
        fetch_repository(lock_of(hub), None, tmp_path, lambda line: None)
    monkeypatch.setenv("HF_ENDPOINT", "mirror.example")
    with pytest.raises(BadUse, match="HF_ENDPOINT is no address"):
        fetch_repository(lock_of(hub), None, tmp_path, lambda line: None)


def test_one_bad_file_does_not_cost_the_others(hub: Hub, tmp_path: Path) -> None:
    hub.files.update({f"{n}.bin": data_of(50_000, n) for n in range(30)})
    hub.faults["7.bin"] = [Fault("wrong", body=data_of(50_000, 99))]
    with pytest.raises(VerificationError, match=r"7\.bin: SHA-256"):
        fetch_repository(lock_of(hub), None, tmp_path, lambda line: None)
    assert len(quarantine_of(tmp_path)) == 1
    before = objects_of(tmp_path)
    hub.log.clear()
    fetch_repository(lock_of(hub), None, tmp_path, lambda line: None)
    fetched = {sha256_bytes(hub.files[r.path]) for r in hub.log if r.side == "storage"}
    assert not fetched & before
    assert objects_of(tmp_path) == {sha256_bytes(data) for data in hub.files.values()}


def zstandard(data: bytes) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.CompressedOutputStream(buffer, "zstd") as stream:
        stream.write(data)
    return buffer.getvalue().to_pybytes()


PACKED = [
    ("rows.jsonl.gz", gzip.compress(FILES["data/a.jsonl"] * 5000, mtime=0)),
    ("rows.jsonl.zst", zstandard(FILES["data/a.jsonl"] * 5000)),
]


@pytest.mark.parametrize(("name", "data"), PACKED, ids=["gz", "zst"])
def test_a_packed_file_cut_on_the_way(name: str, data: bytes, hub: Hub, tmp_path: Path) -> None:
    hub.files[name] = data
    half = len(data) // 2
    hub.faults[name] = [Fault("unstated", at=half), Fault("wrong", body=data[:half])]
    with pytest.raises(VerificationError, match=f"{name}: the hub's file is shorter"):
        fetch_repository(lock_of(hub), tmp_path / "a", tmp_path, lambda line: None)
    fetch_repository(lock_of(hub), tmp_path / "b", tmp_path, lambda line: None)
    assert hub.ranges(name) == [None, f"bytes={half}-", f"bytes={half}-"]
    assert len(list(read_rows(tmp_path / "b", (name,), ("text",)))) == 5000


@pytest.mark.parametrize(("name", "data"), PACKED, ids=["gz", "zst"])
def test_a_packed_file_published_cut(name: str, data: bytes, hub: Hub, tmp_path: Path) -> None:
    """Bytes that are what the lock says: the reader finds that their stream has no end."""
    hub.files[name] = data[:-20]
    fetch_repository(lock_of(hub), tmp_path / "out", tmp_path, lambda line: None)
    with pytest.raises(VerificationError, match=rf"{name}: damaged or cut short"):
        list(read_rows(tmp_path / "out", (name,), ("text",)))


def in_process(tmp_path: Path, **changes: Any) -> None:
    fetch(source_of(**changes), tmp_path, tmp_path / "downloads", tmp_path, print, "a_source")


def test_what_is_not_pinned_is_refused_with_the_way_to_pin_it(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(BadUse, match=r"no revision .*run `instella data lock a_source` first"):
        in_process(tmp_path, revision=None)
    with pytest.raises(BadUse, match="40 lower-case hex"):
        in_process(tmp_path, revision="main")
    with pytest.raises(BadUse, match=r"no lock .*run `instella data lock a_source` first"):
        in_process(tmp_path, lock=None)
    with pytest.raises(BadUse, match=r"no such lock file; run `instella data lock a_source` first"):
        in_process(tmp_path)
    hub.files.update(FILES)
    write_lock(tmp_path / "locks" / "l.json", lock_of(hub, patterns=("data/a*",)))
    with pytest.raises(VerificationError, match=r"lists only files that match data/a\*"):
        in_process(tmp_path)
    write_lock(tmp_path / "locks" / "l.json", lock_of(hub))
    with pytest.raises(VerificationError, match="source a_source pins fff"):
        in_process(tmp_path, revision="f" * 40)
    with pytest.raises(VerificationError, match="locks the dataset owner/name, source a_source"):
        in_process(tmp_path, repository_type="model")
    with pytest.raises(VerificationError, match=r"no file matches 'more/\*'"):
        in_process(tmp_path, files=("more/*",))
    assert hub.log == []


def test_the_published_recipe_asks_for_a_lock() -> None:
    command = [sys.executable, "-m", "instella", "data", "fetch", "deepmath"]
    command += ["--recipe", "recipes/instella-3b.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "run `instella data lock deepmath` first" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_nothing_heavy_is_imported_before_a_command_runs() -> None:
    script = "import sys, instella.cli, instella.stages.source; print(*sys.modules)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"huggingface_hub", "httpx2", "pyarrow", "datasets", "torch", "numpy"}


def test_nobody_else_is_asked(hub: Hub, tmp_path: Path) -> None:
    hub.files["a.bin"] = data_of(10)
    fetch_repository(lock_of(hub), None, tmp_path, lambda line: None)
    assert [(r.side, r.path) for r in hub.log] == [("hub", "a.bin"), ("storage", "a.bin")]


def test_progress() -> None:
    lines: list[str] = []
    times = iter([0.0, 1.0, 6.0, 7.0, 12.0, 14.0])
    progress = ByteProgress("x/y", 10_000_000, lines.append, lambda: next(times))
    progress.here(1_000_000)
    for _ in range(4):
        progress.add(1_000_000)
    progress.back(500_000)
    progress.end()
    assert lines == [
        "x/y: 3 MB of 10 MB, 333 kB/s, 21 s left",
        "x/y: 5 MB of 10 MB, 333 kB/s, 15 s left",
        "x/y: 10 MB verified, 4 MB of them fetched at 286 kB/s",
    ]
    assert [size_text(n) for n in (999, 1e3, 1.2345e9, 5e12)] == [
        "999 bytes", "1 kB", "1.23 GB", "5 TB",
    ]  # fmt: skip


def test_the_stage_has_no_wording_in_its_content(hub: Hub, tmp_path: Path) -> None:
    import io
    from dataclasses import replace

    from instella.artifacts.job import Job
    from instella.progress import Reporter
    from instella.stages import source as stage

    hub.files.update(FILES)
    write_lock(tmp_path / "locks" / "l.json", lock_of(hub))
    first = source_of()
    contents = []
    for number, settings in enumerate((first, replace(first, licence="other words"))):
        output = tmp_path / str(number)
        output.mkdir()
        stage.run(
            Job(
                stage="source_x", settings={"source": settings}, inputs={}, output=output,
                scratch=tmp_path, downloads=tmp_path / "d", recipe_folder=tmp_path,
                numerics="portable-x86", ranks=1, report=Reporter("s", stream=io.StringIO()),
            )
        )  # fmt: skip
        contents.append(files_of(output))
    assert contents[0] == contents[1]
    about = json.loads(contents[0]["source.json"])
    assert about["files"] == {name: len(data) for name, data in WANTED.items()}


def test_a_lock_is_canonical(hub: Hub, tmp_path: Path) -> None:
    hub.files.update(FILES)
    path = write_lock(tmp_path / "lock.json", lock_of(hub))
    write_json(tmp_path / "same.json", json.loads(path.read_bytes()))
    assert path.read_bytes() == (tmp_path / "same.json").read_bytes()
