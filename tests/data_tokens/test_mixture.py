"""The order of a mixture, spooled on the disk."""

from pathlib import Path

import pytest

from instella.canonical import write_jsonl
from instella.data.documents import (
    Choice,
    Conversation,
    Document,
    Message,
    Preference,
    Problem,
    Text,
)
from instella.data.mixture import (
    INDEX,
    Mixture,
    _Buckets,
    _document,
    _payload,
    _read_index,
    _write_index,
    rank,
    spool,
)
from instella.data.packing import Drawn
from instella.data.select import Selection
from instella.errors import VerificationError
from instella.recipe.settings import Part

BOOK = Part(source="book", adapter="text_rows")
NEWS = Part(source="news", adapter="text_rows", repeat=2, max_documents=30)


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    """Two sources in several files."""
    for name, count in (("book", 100), ("news", 50)):
        (tmp_path / name).mkdir()
        for file in range(4):
            rows = [{"text": f"{name} {file} {number} " + "x" * number} for number in range(count)]
            write_jsonl(tmp_path / name / f"{file}.jsonl", rows)
    return {f"source_{name}": tmp_path / name for name in ("book", "news")}


def documents(mixture: Mixture) -> list[Drawn]:
    return [item for number in range(len(mixture.units)) for item in mixture.unit(number)]


def test_the_order_is_that_of_the_ranks(tmp_path: Path, inputs: dict[str, Path]) -> None:
    mixture = spool([BOOK, NEWS], inputs, 7, tmp_path / "spool")
    found = documents(mixture)
    ranks = [rank(7, item.part, item.document.key) for item in found]
    assert ranks == sorted(ranks)
    assert len(found) == mixture.drawn == 400 + 60
    assert [s.drawn for s in mixture.selections] == [400, 60]
    keys = {(item.part, item.source, item.document.key) for item in found}
    assert len(keys) == len(found)
    assert (1, "news", "0.jsonl#1") in keys and (1, "news", "0.jsonl#1#2") in keys
    other = documents(spool([BOOK, NEWS], inputs, 8, tmp_path / "other"))
    assert other != found and sorted(map(repr, other)) == sorted(map(repr, found))


def test_the_order_is_a_fair_permutation(tmp_path: Path, inputs: dict[str, Path]) -> None:
    found = documents(spool([BOOK], inputs, 0, tmp_path / "spool"))
    files = [int(item.document.key[0]) for item in found]
    # A quarter of the documents comes from each file, in every stretch of the order.
    for start in (0, 200):
        for file in range(4):
            assert 25 < files[start : start + 200].count(file) < 75


@pytest.mark.parametrize("unit_bytes", [1, 400, 10**9])
def test_the_size_of_a_unit_changes_nothing(
    tmp_path: Path, inputs: dict[str, Path], unit_bytes: int
) -> None:
    parts = [BOOK, NEWS]
    expected = documents(spool(parts, inputs, 7, tmp_path / "spool"))
    mixture = spool(parts, inputs, 7, tmp_path / "other", unit_bytes=unit_bytes)
    assert documents(mixture) == expected
    for unit in mixture.units:
        assert sum(bucket.size for bucket in unit) <= unit_bytes or len(unit) == 1
    assert (len(mixture.units) == 1) == (unit_bytes == 10**9)


def test_files_in_another_place_of_the_mixture_keep_their_order(
    tmp_path: Path, inputs: dict[str, Path]
) -> None:
    whole = documents(spool([BOOK], inputs, 7, tmp_path / "whole"))
    (inputs["source_book"] / "2.jsonl").unlink()
    fewer = documents(spool([BOOK], inputs, 7, tmp_path / "fewer"))
    assert fewer == [item for item in whole if not item.document.key.startswith("2.")]


def test_equal_ranks_are_ordered_by_their_documents(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"")
    pieces = [Text("same", text) for text in ("b", "a", "c")]
    for name, order in (("one", pieces), ("two", pieces[::-1])):
        folder = tmp_path / name
        folder.mkdir()
        with _Buckets(folder) as buckets:
            for document in order:
                place = rank(0, 0, document.key)
                buckets.add(place.hex()[:2], place + _payload(0, document))
        _write_index(folder, [Selection(3, 3, 3)], None)
        found = documents(_read_index(folder, (BOOK,), False))
        assert [item.document for item in found] == [pieces[1], pieces[0], pieces[2]]


@pytest.mark.parametrize(
    "document",
    [
        Text('k\u2028"\n', "Grüße \U0001f642 \x00 \r\n"),
        Conversation("k", (Message("user", "q"), Message("assistant", ""))),
        Conversation("k", ()),
        Preference("k", "q", "good", "bad"),
        Problem("k", "1+1", "2"),
        Choice("k", "q", ("no", "yes"), 1),
    ],
)
def test_documents_come_back_as_they_were(document: Document) -> None:
    assert _document(_payload(3, document)) == (3, document)


def test_a_spool_is_used_again_and_damage_is_noticed(
    tmp_path: Path, inputs: dict[str, Path]
) -> None:
    folder = tmp_path / "spool"
    mixture = spool([BOOK], inputs, 7, folder)
    expected = documents(mixture)
    for path in inputs["source_book"].iterdir():
        path.rename(path.with_suffix(".away"))
    assert documents(spool([BOOK], inputs, 7, folder)) == expected
    for path in inputs["source_book"].iterdir():
        path.rename(path.with_suffix(".jsonl"))
    bucket = folder / mixture.units[0][0].name
    data = bytearray(bucket.read_bytes())
    data[-1] ^= 1
    bucket.write_bytes(data)
    with pytest.raises(VerificationError, match="the spooled documents are damaged"):
        documents(mixture)
    assert documents(spool([BOOK], inputs, 7, folder)) == expected


def test_a_spool_cut_off_is_made_again(tmp_path: Path, inputs: dict[str, Path]) -> None:
    folder = tmp_path / "spool"
    expected = documents(spool([BOOK], inputs, 7, folder))
    (folder / INDEX).unlink()
    (folder / "00ff").write_bytes(b"half")
    assert documents(spool([BOOK], inputs, 7, folder)) == expected
    assert not (folder / "00ff").exists()


def test_no_document_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"")
    with pytest.raises(VerificationError, match=r"parts \(book\) hold no document"):
        spool([BOOK], {"source_book": tmp_path}, 0, tmp_path / "spool")
