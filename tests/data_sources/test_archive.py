"""Archives nobody has to trust."""

import stat
import zipfile
from pathlib import Path

import pytest

from instella.data.sources import archive
from instella.data.sources.archive import extract
from instella.errors import VerificationError


def zip_of(path: Path, entries: list[tuple[str | zipfile.ZipInfo, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, data in entries:
            file.writestr(name, data)
    return path


@pytest.mark.parametrize(
    "name",
    ["../evil", "a/../../evil", "/etc/evil", "a//b", "./a", "a\\..\\b", "C:/evil", "a\nb", ".."],
)
def test_unsafe_names_are_refused_wherever_they_stand(name: str, tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", [("good.txt", b"1"), (name, b"2")])
    (tmp_path / "out").mkdir()
    with pytest.raises(VerificationError, match=r"a\.zip: unsafe file name"):
        extract(path, ["good.txt"], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_name_cut_at_a_nul_is_refused(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", [("good.txtXevil", b"1")])
    path.write_bytes(path.read_bytes().replace(b"good.txtXevil", b"good.txt\0evil"))
    with pytest.raises(VerificationError, match="unsafe file name"):
        extract(path, ["good.txt"], tmp_path)


def test_a_link_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = zip_of(tmp_path / "a.zip", [("good", b"1"), (link, b"/etc/passwd")])
    with pytest.raises(VerificationError, match="link"):
        extract(path, ["good"], tmp_path)


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        path = zip_of(tmp_path / "a.zip", [("same", b"1"), ("same", b"2")])
    with pytest.raises(VerificationError, match="stands twice"):
        extract(path, ["same"], tmp_path)


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", [("secret", b"1")])
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(VerificationError, match="encrypted"):
        extract(path, ["secret"], tmp_path)


def test_a_member_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zip_of(tmp_path / "a.zip", [("large", b"0" * 100), ("small", b"0" * 60)])
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(archive, "MAX_MEMBER_BYTES", 99)
    with pytest.raises(VerificationError, match="would take 100 bytes"):
        extract(path, ["large"], tmp_path / "out")
    monkeypatch.setattr(archive, "MAX_MEMBER_BYTES", 100)
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 159)
    with pytest.raises(VerificationError, match="160 bytes together"):
        extract(path, ["*"], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_flipped_bit_in_a_member_is_noticed(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", [("text", b"honest bytes")])
    path.write_bytes(path.read_bytes().replace(b"honest", b"honesT"))
    with pytest.raises(VerificationError, match="damaged"):
        extract(path, ["text"], tmp_path)


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=str
)
def test_a_broken_stream_of_any_method_is_noticed(method: int, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("text", b"many bytes " * 1000)
    data = bytearray(path.read_bytes())
    data[45:60] = b"\xff" * 15
    path.write_bytes(data)
    with pytest.raises(VerificationError, match=r"a\.zip: damaged"):
        extract(path, ["text"], tmp_path)


def test_any_altered_byte_is_harmless_or_noticed(tmp_path: Path) -> None:
    good = zip_of(tmp_path / "a.zip", [("text", b"x" * 100)]).read_bytes()
    for place in range(len(good)):
        folder = tmp_path / str(place)
        folder.mkdir()
        path = folder / "a.zip"
        path.write_bytes(good[:place] + b"\xff" + good[place + 1 :])
        try:
            extract(path, ["text"], folder)
        except VerificationError:
            continue
        assert (folder / "text").read_bytes() == b"x" * 100


@pytest.mark.parametrize("data", [b"", b"no zip at all", b"PK\x05\x06"])
def test_no_zip(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(VerificationError, match="damaged"):
        extract(tmp_path / "a.zip", ["*"], tmp_path)


def test_a_file_that_is_also_a_folder(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", [("a", b"1"), ("a/b", b"2")])
    (tmp_path / "out").mkdir()
    with pytest.raises(VerificationError, match="cannot write"):
        extract(path, ["*"], tmp_path / "out")


def test_a_pattern_without_a_match_is_an_error(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", [("a/x.txt", b"1")])
    with pytest.raises(VerificationError, match=r"no file matches '\*\.gz'"):
        extract(path, ["a/*", "*.gz"], tmp_path)
