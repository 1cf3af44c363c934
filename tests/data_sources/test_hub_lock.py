"""Locks: what is read from one, how the hub makes one, and what is said to have changed."""

import io
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from instella.canonical import sha256_bytes, write_json
from instella.cli import main
from instella.commands.data_lock import _target
from instella.data.sources import hub_listing, hub_trouble
from instella.data.sources.hub_changes import changes
from instella.data.sources.hub_download import fetch_repository
from instella.data.sources.hub_listing import make_lock
from instella.data.sources.hub_lock import (
    Lock,
    LockedFile,
    lock_bytes,
    parse_lock,
    read_lock,
    schema_name,
)
from instella.errors import KitError, VerificationError
from instella.recipe.reader import read_recipe

from .hub_help import data_of, lock_of, objects_of, write_lock, written_json
from .hub_server import TOKEN, Fault, Hub, git_sha1

ROOT = Path(__file__).resolve().parents[2]
ROWS = b'{"text":"one","n":1}\n\n{"text":null,"m":[]}\n'


def parquet(rows: int, **columns: pa.Array) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array(range(rows)), **columns}), file)
    return file.getvalue()


def make(hub: Hub, tmp_path: Path, *patterns: str, known: Lock | None = None) -> Lock:
    kind = hub.kind.removesuffix("s")
    downloads = tmp_path / "downloads"
    lines: list[str] = []
    return make_lock(hub.name, kind, "main", patterns or ("*",), downloads, lines.append, known)


@pytest.mark.parametrize("kind", ["datasets", "models"])
def test_a_lock_of_what_the_hub_holds(kind: str, hub: Hub, tmp_path: Path) -> None:
    hub.kind, hub.small, hub.page_size = kind, 30, 2
    text = pa.array(["x" * 100] * 9000)
    hub.files.update(
        {
            "a.parquet": parquet(9000, text=text), "b/b.parquet": parquet(5),
            "README.md": b"# Card", "empty": b"", "rows.jsonl": ROWS, "w.bin": data_of(99),
        }
    )  # fmt: skip
    lock = make(hub, tmp_path)
    page = f"/{kind}/owner/name" if kind == "datasets" else "/owner/name"
    assert lock.page.startswith("https://") and lock.page.endswith(page)
    assert (lock.commit, lock.licence, lock.gated) == (hub.commit, "odc-by", "no")
    for name, data in hub.files.items():
        blob = git_sha1(data) if hub.is_small(name) else None
        file = lock.files[name]
        assert (file.size, file.sha256, file.blob) == (len(data), sha256_bytes(data), blob)
    rows = {name: file.rows for name, file in lock.files.items() if file.rows is not None}
    assert rows == {"a.parquet": 9000, "b/b.parquet": 5}
    assert lock.schemas[str(lock.files["a.parquet"].schema)] == {"n": "int64", "text": "string"}
    assert lock.schemas[str(lock.files["b/b.parquet"].schema)] == {"n": "int64"}
    # Of the large files only the footers are read; small ones are kept.
    asked = [r for r in hub.log if r.side == "storage"]
    assert {r.path for r in asked} == {"a.parquet", "b/b.parquet"}
    assert all(r.range is not None for r in asked)
    assert objects_of(tmp_path / "downloads") == {sha256_bytes(b"# Card"), sha256_bytes(b"")}
    assert parse_lock(written_json(write_lock(tmp_path / "l.json", lock)), "l") == lock
    hub.log.clear()
    fetch_repository(lock, tmp_path / "out", tmp_path / "downloads", lambda line: None)
    assert {r.path for r in hub.log} == {"a.parquet", "b/b.parquet", "rows.jsonl", "w.bin"}
    # What is here is counted.
    again = make(hub, tmp_path, known=lock)
    assert again.files["rows.jsonl"].rows == 2
    assert again.schemas[str(again.files["rows.jsonl"].schema)] == {
        "text": "null|string", "n": "integer", "m": "list",
    }  # fmt: skip
    assert changes(lock, again) == [
        "rows: unknown -> 9,007", "column m: added, list", "column n: int64 -> int64 or integer",
        "column text: string -> null|string or string",
        "facts about the same bytes: 1 files",
    ]  # fmt: skip


def test_a_long_footer_is_read_whole(hub: Hub, tmp_path: Path) -> None:
    columns = {f"column_{n}_{'x' * 200}": pa.array([1]) for n in range(400)}
    hub.files["a.parquet"] = parquet(1, **columns)
    lock = make(hub, tmp_path)
    assert lock.files["a.parquet"].rows == 1
    assert len(lock.schemas[str(lock.files["a.parquet"].schema)]) == 401
    assert len(hub.ranges("a.parquet")) == 2


def test_known_facts_are_not_asked_for_again(hub: Hub, tmp_path: Path) -> None:
    hub.small = 10
    hub.files.update({"a.parquet": parquet(5), "b.parquet": parquet(6), "README.md": b"# Card"})
    first = make(hub, tmp_path)
    hub.log.clear()
    hub.files["b.parquet"] = parquet(7)
    second = make(hub, tmp_path / "other", known=first)
    assert {r.path for r in hub.log if "/" not in r.path} == {"b.parquet"}
    assert second.files["a.parquet"] == first.files["a.parquet"]
    assert second.files["README.md"] == first.files["README.md"]


def test_a_damaged_parquet_file_is_locked_without_rows(hub: Hub, tmp_path: Path) -> None:
    whole = parquet(5)
    hub.files.update({"a.parquet": whole[:-9] + b"\xff" * 9, "b.parquet": b"tiny"})
    hub.files["c.parquet"] = whole[:4] + b"\0" * (len(whole) - 12) + whole[-8:]
    hub.files["rows.jsonl.gz"] = b"no gzip"
    hub.files["half.jsonl"] = b'{"\\ud800": 1}\n'
    # The name of a column is bytes of any kind.
    named = io.BytesIO()
    pq.write_table(pa.table({"qqqq": [1]}), named, store_schema=False)
    hub.files["bytes.parquet"] = named.getvalue().replace(b"qqqq", b"q\xffqq")
    lock = make(hub, tmp_path)
    fetch_repository(lock, None, tmp_path / "downloads", lambda line: None)
    for made in (lock, make(hub, tmp_path)):
        assert {file.rows for file in made.files.values()} == {None}
        assert made.schemas == {}


def test_a_gated_set_is_locked_without_rows(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated, hub.let_in = "manual", TOKEN
    hub.files.update({"a.parquet": parquet(5), "b.parquet": parquet(6)})
    lock = make(hub, tmp_path)
    assert lock.gated == "manual" and {file.rows for file in lock.files.values()} == {None}
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert sorted(file.rows or 0 for file in make(hub, tmp_path).files.values()) == [5, 6]
    hub.small = 10_000
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(KitError, match="gated; set HF_TOKEN"):
        make(hub, tmp_path / "other")


def test_pages_of_a_mirror_are_asked_of_the_mirror(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.page_size, hub.stale_links = 2, True
    hub.files.update({f"{n}.bin": data_of(10, n) for n in range(5)})
    assert set(make(hub, tmp_path).files) == set(hub.files)
    # A list that never ends is left.
    monkeypatch.setattr(hub_listing, "MAX_PAGES", 2)
    with pytest.raises(VerificationError, match="more than 2 pages"):
        make(hub, tmp_path)


def test_the_api_in_trouble(hub: Hub, tmp_path: Path) -> None:
    hub.files["a.bin"] = data_of(10)
    hub.api_faults = [Fault("", n) for n in (503, 429, 502)]
    assert set(make(hub, tmp_path).files) == {"a.bin"}
    hub.api_faults = [Fault("", 503)] * 9
    with pytest.raises(VerificationError, match=r"owner/name: HTTP 503 .* 4 times"):
        make(hub, tmp_path)


GOOD = {"type": "file", "path": "a", "size": 1, "oid": "0" * 40}


@pytest.mark.parametrize(
    "answer",
    [
        "[", "{}", "[1]", [{**GOOD, "path": "../a"}], [{**GOOD, "path": "/a"}],
        [{**GOOD, "size": -1}], [{**GOOD, "size": "1"}], [{**GOOD, "oid": "0"}],
        [{**GOOD, "lfs": {"oid": "0" * 63}}], [{**GOOD, "lfs": []}], [GOOD, GOOD],
        [GOOD, {**GOOD, "path": "a/b"}], [{**GOOD, "type": "link"}], [{**GOOD, "size": 1 << 60}],
        [{**GOOD, "size": 1 << 30}],
    ],
)  # fmt: skip
def test_a_list_nobody_has_to_trust(answer: Any, hub: Hub, tmp_path: Path) -> None:
    write_json(tmp_path / "answer", answer)
    body = answer.encode() if isinstance(answer, str) else (tmp_path / "answer").read_bytes()
    hub.api_faults = [
        Fault("", 200, body=b'{"sha":"%s"}' % hub.commit.encode()), Fault("", 200, body=body),
    ]  # fmt: skip
    with pytest.raises(VerificationError) as caught:
        make(hub, tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "downloads" / "hub" / "objects").exists()


def test_a_small_file_that_is_not_what_git_says(hub: Hub, tmp_path: Path) -> None:
    hub.small = 10
    hub.files["README.md"] = b"# Card"
    hub.faults["README.md"] = [Fault("wrong", body=b"# Cart")]
    with pytest.raises(VerificationError, match=r"README\.md: git SHA-1 is"):
        make(hub, tmp_path)
    assert objects_of(tmp_path / "downloads") == set()


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ({"license": ["mit", "odc-by"]}, "mit, odc-by"), ({}, "unknown"), (None, "unknown"),
        ({"license": "other", "license_name": "Own  terms"}, "Own terms"),
        ({"license": {"x": 1}}, "unknown"), ({"license": "\x1b[31m"}, "unknown"),
    ],
)  # fmt: skip
def test_the_licence_on_a_card(card: Any, licence: str, hub: Hub, tmp_path: Path) -> None:
    hub.files["a.bin"], hub.card = data_of(10), card
    assert make(hub, tmp_path).licence == licence


def value_of(hub: Hub, tmp_path: Path) -> dict[str, Any]:
    hub.files["a"] = b"1"
    columns = {"n": "int64"}
    lock = lock_of(hub, schemas={schema_name(columns): columns})
    value: dict[str, Any] = written_json(write_lock(tmp_path / "lock.json", lock))
    return value


FILE = {"sha256": "0" * 64, "size": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"format": True}, {"repository": "a/b/c"}, {"repository": "../b"},
        {"type": "space"}, {"type": ["dataset"]}, {"commit": "main"}, {"commit": None},
        {"patterns": []}, {"patterns": "*"}, {"patterns": [1]}, {"licence": ""}, {"licence": 1},
        {"licence": "\x1b[2J"}, {"gated": False}, {"page": "javascript:1"},
        {"page": "https://a b"}, {"files": {}}, {"files": []}, {"more": 1},
        {"files": {"../evil": FILE}}, {"files": {"/etc/evil": FILE}}, {"files": {"a\n": FILE}},
        {"files": {"a\x9b": FILE}},
        {"files": {"a": FILE, "a/b": FILE}}, {"files": {"a": []}},
        {"files": {"a": {"sha256": "0" * 64}}}, {"files": {"a": {**FILE, "size": True}}},
        {"files": {"a": {**FILE, "size": -1}}}, {"files": {"a": {**FILE, "sha256": 5}}},
        {"files": {"a": {**FILE, "rows": 1.5}}}, {"files": {"a": {**FILE, "blob": "0" * 64}}},
        {"files": {"a": {**FILE, "schema": "0" * 12}}}, {"files": {"a": {**FILE, "x": 1}}},
        {"files": {"a": {**FILE, "schema": []}}}, {"schemas": {"0" * 12: {"n": "int64"}}},
        {"schemas": {"0" * 12: []}}, {"schemas": []}, {"schemas": {"0" * 12: {"n": 1}}},
        {"schemas": {"0" * 12: {"\ud800": "int64"}}}, {"files": {"a" * 256: FILE}},
    ],
    ids=repr,
)  # fmt: skip
def test_a_malformed_lock(change: dict[str, Any], hub: Hub, tmp_path: Path) -> None:
    value = value_of(hub, tmp_path)
    assert read_lock(tmp_path / "lock.json").files["a"].size == 1
    (tmp_path / "lock.json").write_text(json.dumps({**value, **change}), encoding="utf-8")
    with pytest.raises(VerificationError, match=r"lock\.json") as caught:
        read_lock(tmp_path / "lock.json")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["format", "files", "schemas", "patterns", "commit"])
def test_a_key_is_missing(name: str, hub: Hub, tmp_path: Path) -> None:
    value = value_of(hub, tmp_path)
    del value[name]
    with pytest.raises(VerificationError, match=f"{name}: is missing"):
        parse_lock(value, "lock")


def test_what_changed(hub: Hub) -> None:
    old_columns, new_columns = {"id": "string", "n": "int64"}, {"id": "int64", "m": "bool"}
    one, two = schema_name(old_columns), schema_name(new_columns)
    hub.files["README.md"] = b"# Card"
    base = lock_of(hub)
    old = replace(
        base, schemas={one: old_columns},
        files={
            "a.parquet": LockedFile(1000, "0" * 64, rows=300_000, schema=one),
            "b.parquet": LockedFile(500, "1" * 64, rows=78_341, schema=one), **base.files,
        },
    )  # fmt: skip
    new = replace(
        base, commit="f" * 40, licence="mit", gated="auto", schemas={two: new_columns},
        files={
            "a.parquet": LockedFile(900, "2" * 64, rows=300_000, schema=two),
            "c.parquet": LockedFile(400, "3" * 64, rows=66_981, schema=two), **base.files,
        },
    )  # fmt: skip
    assert changes(old, new) == [
        f"commit: {hub.commit} -> {'f' * 40}", "licence: odc-by -> mit",
        "gated: no -> auto (terms at https://example.org/page)",
        "rows: 378,341 -> 366,981 (-11,360)",
        "column id: string -> int64", "column m: added, bool", "column n: removed, was int64",
        "files: 1 added, 1 removed, 1 changed",
        "  + c.parquet (400 bytes, 66,981 rows)", "  - b.parquet (500 bytes, 78,341 rows)",
        "  ~ a.parquet (1 kB, 300,000 rows -> 900 bytes, 300,000 rows)",
    ]  # fmt: skip
    assert changes(old, old) == []
    many = {f"{n}.bin": LockedFile(1, "4" * 64) for n in range(99)}
    assert changes(old, replace(old, files={**old.files, **many}))[-1] == "  and 79 more"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a recipe that has two sources of one repository."""
    recipe = yaml.safe_load((ROOT / "recipes" / "nano.yaml").read_text())
    for name, pattern in (("one", "a*"), ("two", "b*")):
        recipe["sources"][name] = {
            "kind": "hub", "licence": "odc-by", "repository": "owner/name", "files": [pattern],
        }  # fmt: skip
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "r.yaml").write_text(yaml.safe_dump(recipe))
    (tmp_path / "config.yaml").write_text("recipe: recipes/r.yaml\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pin(project: Path, commit: str) -> None:
    path = project / "recipes" / "r.yaml"
    recipe = yaml.safe_load(path.read_text())
    for name in ("one", "two"):
        recipe["sources"][name] |= {"revision": commit, "lock": "locks/dataset/owner/name.json"}
    path.write_text(yaml.safe_dump(recipe))


def test_lock_then_fetch(hub: Hub, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.files.update({"a.parquet": parquet(378), "b.parquet": parquet(9), "c.bin": data_of(10)})
    assert main(["data", "fetch", "one"]) == 2
    assert capsys.readouterr().err.endswith("run `instella data lock one` first\n")
    assert main(["data", "lock", "one", "--check"]) == 1
    path = project / "recipes" / "locks" / "dataset" / "owner" / "name.json"
    assert not path.exists() and "new: commit" in capsys.readouterr().out
    assert main(["data", "lock", "one"]) == 0
    out = capsys.readouterr().out
    assert "new: commit" in out and "2 files" in out and "387 rows" in out
    assert (
        f"set for one, two:\n    revision: {hub.commit}\n    lock: locks/dataset/owner/name.json"
        in out
    )
    lock = read_lock(path)
    assert lock.patterns == ("a*", "b*") and set(lock.files) == {"a.parquet", "b.parquet"}
    assert path.read_bytes() == lock_bytes(lock)
    assert [p.name for p in path.parent.iterdir()] == [path.name]

    pin(project, hub.commit)
    assert main(["data", "fetch", "two"]) == 0
    data = hub.files["b.parquet"]
    printed = capsys.readouterr()
    assert printed.out == f"{sha256_bytes(data)} {len(data):>12} b.parquet\n"
    assert "verified" in printed.err

    assert main(["data", "lock", "owner/name", "--check"]) == 0
    assert "nothing changed" in capsys.readouterr().out
    hub.commit, hub.files["a.parquet"] = "f" * 40, parquet(366)
    before = path.read_bytes()
    assert main(["data", "lock", "one", "--check"]) == 1
    assert "rows: 387 -> 375 (-12)" in capsys.readouterr().out
    assert path.read_bytes() == before
    assert main(["data", "lock", "one"]) == 0
    assert f"revision: {'f' * 40}" in capsys.readouterr().out
    # The recipe still pins the old commit.
    assert main(["data", "fetch", "one"]) == 4
    assert "locks commit ffff" in capsys.readouterr().err
    pin(project, hub.commit)
    assert main(["data", "fetch", "one"]) == 0


def test_lock_elsewhere_and_of_a_revision(
    hub: Hub, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.files.update({"a.bin": data_of(10), "b.bin": data_of(20)})
    out = project / "other" / "l.json"
    assert main(["data", "lock", "one", "--out", str(out), "--revision", hub.commit]) == 0
    assert read_lock(out).commit == hub.commit
    assert main(["data", "lock", "one", "--out", str(out), "--revision", "gone"]) == 4
    assert "has no revision gone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [("nothing", "no source 'nothing'"), ("a/b", "no source has the repository 'a/b'")],
)
def test_no_such_source(
    name: str, text: str, hub: Hub, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "lock", name]) == 2
    assert text in capsys.readouterr().err
    other = next(
        key for key, value in yaml.safe_load((project / "recipes" / "r.yaml").read_text())[
            "sources"
        ].items() if value["kind"] != "hub"
    )  # fmt: skip
    assert main(["data", "lock", other]) == 2
    assert "only the hub's need a lock" in capsys.readouterr().err


def test_offline_it_says_so_and_ends_soon(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    waits = hub_trouble.WAIT_SECONDS
    assert sum(waits[: hub_trouble.SILENT_WAITS]) <= 10 < sum(waits)
    monkeypatch.setattr(hub_trouble, "WAIT_SECONDS", (0.01,) * len(waits))
    assert main(["data", "lock", "one"]) == 4
    *told, last = capsys.readouterr().err.splitlines()
    assert len(told) == hub_trouble.SILENT_WAITS
    assert all("ConnectError" in line and "asking again in 0.01 s" in line for line in told)
    assert "4 times; check the network and HF_ENDPOINT" in last


def test_a_hub_that_has_answered_is_waited_for_longer(
    hub: Hub, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hub_trouble, "WAIT_SECONDS", (0.001,) * 6)
    hub.files["a.bin"] = hub.files["b.bin"] = data_of(10)
    hub.api_faults.extend(Fault("status", 503) for _ in range(5))
    assert main(["data", "lock", "one"]) == 0
    assert capsys.readouterr().err.count("HTTP 503") == 5


def test_a_lock_stays_in_the_recipe_s_folder(
    hub: Hub, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.files["a.bin"] = hub.files["b.bin"] = data_of(10)
    (project / "outside").mkdir()
    (project / "recipes" / "locks").symlink_to(project / "outside")
    for action in ("lock", "fetch"):
        pin(project, hub.commit)
        assert main(["data", action, "one"]) == 2
        assert "leads out of the recipe's folder" in capsys.readouterr().err
    assert list((project / "outside").iterdir()) == []


def test_a_model_and_a_data_set_of_one_name_have_two_locks(project: Path) -> None:
    path = project / "recipes" / "r.yaml"
    recipe = yaml.safe_load(path.read_text())
    recipe["sources"]["two"]["repository_type"] = "model"
    recipe["sources"]["three"] = {**recipe["sources"]["one"], "repository": "own--er/name"}
    recipe["sources"]["four"] = {**recipe["sources"]["one"], "repository": "own/er--name"}
    path.write_text(yaml.safe_dump(recipe))
    names = ("one", "two", "three", "four")
    files = [_target(read_recipe(path), path, name, None).file for name in names]
    assert len(set(files)) == 4
    assert files[1] == project / "recipes" / "locks" / "model" / "owner" / "name.json"
