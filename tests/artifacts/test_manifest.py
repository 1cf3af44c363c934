"""Manifests: one form, and hostile ones are refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from instella.artifacts.manifest import Entry, Manifest, parse_manifest, read_manifest
from instella.canonical import json_bytes
from instella.errors import VerificationError

SHA = "ab" * 32
ROOT = "12" * 32


def manifest(**files: Entry) -> Manifest:
    identity = {"stage": "words", "kind": "toy", "inputs": {"text": SHA}, "settings": {"a": 1.5}}
    named = {
        "deep/b.txt": Entry(SHA, 3),
        "a.txt": Entry("cd" * 32, 0),
        "c.ledger.jsonl": Entry("ef" * 32, 5),
        **files,
    }
    return Manifest("words", "toy", "computed", identity, named, {"c.ledger.jsonl": ROOT})


def test_round_trip_and_order_of_files() -> None:
    made = manifest()
    data = made.to_bytes()
    assert parse_manifest(data, "m") == made
    files = dict(reversed(list(made.files.items())))
    turned = Manifest("words", "toy", "computed", made.identity, files, made.ledgers)
    assert turned.to_bytes() == data
    assert json.loads(data)["content"] == made.content


def test_content_depends_on_files_and_origin_alone() -> None:
    made = manifest()
    other = Manifest("words", "toy", "computed", {**made.identity, "settings": {}}, made.files)
    imported = Manifest("words", "toy", "imported", made.identity, made.files)
    assert made.content == other.content != imported.content
    assert other.ledgers == {}


def set_path(path: str) -> Callable[[Any], None]:
    def change(value: Any) -> None:
        value["files"][path] = {"sha256": SHA, "size": 3}

    return change


def set_key(*place: str, to: Any) -> Callable[[Any], None]:
    def change(value: Any) -> None:
        for key in place[:-1]:
            value = value[key]
        value[place[-1]] = to

    return change


def drop(*place: str) -> Callable[[Any], None]:
    def change(value: Any) -> None:
        for key in place[:-1]:
            value = value[key]
        del value[place[-1]]

    return change


BAD_PATHS = [
    "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/.", "", "a/", "a\\b", "a\0b", "a\nb", "a\x7f",
    "A.TXT", "a.txt/b", "deep", "manifest.json", "Manifest.json/x", "cafe\u0301", "\u202ex",
    "x" * 256, "/".join(["y" * 200] * 6),
]  # fmt: skip

HOSTILE: list[tuple[str, Callable[[Any], None]]] = [
    *((f"path {path[:12]!r}", set_path(path)) for path in BAD_PATHS),
    ("extra key", set_key("more", to=1)),
    ("missing key", drop("origin")),
    ("format", set_key("format", to="instella.manifest/2")),
    ("origin", set_key("origin", to="guessed")),
    ("origin list", set_key("origin", to=["computed"])),
    ("stage number", set_key("stage", to=7)),
    ("stage path", set_key("stage", to="../words")),
    ("stage of another", set_key("stage", to="other")),
    ("kind null", set_key("kind", to=None)),
    ("identity list", set_key("identity", to=[])),
    ("inputs gone", drop("identity", "inputs")),
    ("inputs text", set_key("identity", "inputs", to="x")),
    ("input short", set_key("identity", "inputs", "text", to="ab")),
    ("files list", set_key("files", to=[])),
    ("no file", set_key("files", to={})),
    ("entry text", set_key("files", "a.txt", to=SHA)),
    ("entry extra", set_key("files", "a.txt", "mode", to=1)),
    ("two sizes", set_key("files", "a.txt", "sha256", to=SHA)),
    ("size true", set_key("files", "a.txt", "size", to=True)),
    ("size float", set_key("files", "a.txt", "size", to=1.0)),
    ("size negative", set_key("files", "a.txt", "size", to=-1)),
    ("size text", set_key("files", "a.txt", "size", to="1")),
    ("sha upper", set_key("files", "a.txt", "sha256", to=SHA.upper())),
    ("sha short", set_key("files", "a.txt", "sha256", to=SHA[:-1])),
    ("sha newline", set_key("files", "a.txt", "sha256", to=SHA + "\n")),
    ("ledgers gone", drop("ledgers")),
    ("ledgers list", set_key("ledgers", to=[])),
    ("ledger missing", set_key("ledgers", to={})),
    ("ledger of no file", set_key("ledgers", "d.ledger.jsonl", to=ROOT)),
    ("ledger of another file", set_key("ledgers", "a.txt", to=ROOT)),
    ("ledger without a root", set_path("d.ledger.jsonl")),
    ("root null", set_key("ledgers", "c.ledger.jsonl", to=None)),
    ("root list", set_key("ledgers", "c.ledger.jsonl", to=[ROOT])),
    ("root short", set_key("ledgers", "c.ledger.jsonl", to=ROOT[:-1])),
    ("root upper", set_key("ledgers", "c.ledger.jsonl", to="AB" * 32)),
    ("root newline", set_key("ledgers", "c.ledger.jsonl", to=ROOT + "\n")),
    ("content", set_key("content", to=SHA)),
    ("content null", set_key("content", to=None)),
    ("file altered", set_key("files", "a.txt", "size", to=9)),
]


@pytest.mark.parametrize(("name", "change"), HOSTILE, ids=[name for name, _ in HOSTILE])
def test_hostile_values_are_refused(name: str, change: Callable[[Any], None]) -> None:
    value = json.loads(manifest().to_bytes())
    change(value)
    with pytest.raises(VerificationError) as error:
        parse_manifest(json_bytes(value), "place/manifest.json")
    assert str(error.value).startswith("place/manifest.json: ")
    assert "\n" not in str(error.value) and "\0" not in str(error.value)


GOOD = manifest().to_bytes()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        GOOD[:-1],
        GOOD + b"\n",
        b"\xef\xbb\xbf" + GOOD,
        b" " + GOOD,
        GOOD.replace(b'"kind":"toy"', b'"kind":"toy","kind":"toy"', 1),
        GOOD.replace(b"1.5", b"NaN"),
        GOOD.replace(b"1.5", b"1e999"),
        GOOD.replace(b"1.5", b"1.50"),
        GOOD.replace(b"1.5", b'"\\ud83d"'),
        GOOD.replace(b"1.5", b"[" * 900 + b"]" * 900),
        GOOD.replace(b"1.5", b"[" * 100_000 + b"]" * 100_000),
        GOOD.replace(b'"size":3', b'"size":' + b"9" * 5000),
        GOOD.decode().encode("utf-16"),
        GOOD[: len(GOOD) // 2],
    ],
)  # fmt: skip
def test_hostile_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(VerificationError) as error:
        parse_manifest(data, "m")
    assert "\n" not in str(error.value)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(VerificationError, match="larger than"):
        read_manifest(path)
