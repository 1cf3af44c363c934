"""Selection by keyed hashes."""

import random

import pytest

from instella.data.documents import Text
from instella.data.select import Selection, select
from instella.recipe.settings import Part

DOCUMENTS = [Text(f"k{n}", f"text {n}") for n in range(1000)]


def keys(documents: list[Text], **settings: object) -> list[str]:
    part = Part("s", "text_rows", **settings)  # type: ignore[arg-type]
    return [document.key for document in select(documents, part)]


def test_a_share_depends_on_each_document_alone() -> None:
    kept = keys(DOCUMENTS, fraction=0.2)
    assert 150 < len(kept) < 250
    shuffled = list(DOCUMENTS)
    random.Random(1).shuffle(shuffled)
    assert sorted(keys(shuffled, fraction=0.2)) == sorted(kept)
    assert keys(DOCUMENTS[:500], fraction=0.2) == [key for key in kept if int(key[1:]) < 500]
    assert set(kept) <= set(keys(DOCUMENTS, fraction=0.4))
    other = Part("another", "text_rows", fraction=0.2)
    assert [document.key for document in select(DOCUMENTS, other)] != kept


def test_limit_and_repetition() -> None:
    assert keys(DOCUMENTS, max_documents=2) == ["k0", "k1"]
    assert keys(DOCUMENTS, max_documents=2, repeat=3) == [
        "k0", "k0#2", "k0#3", "k1", "k1#2", "k1#3",
    ]  # fmt: skip
    part = Part("s", "text_rows", repeat=2, max_documents=1)
    assert [document.text for document in select(iter(DOCUMENTS), part)] == ["text 0", "text 0"]


def test_what_is_read_kept_and_repeated_is_counted() -> None:
    counts = Selection()
    part = Part("s", "text_rows", fraction=0.5, max_documents=20, repeat=3)
    kept = list(select(DOCUMENTS, part, counts))
    last = int(kept[-1].key[1:].partition("#")[0])
    assert counts == Selection(read=last + 1, selected=20, drawn=60) and len(kept) == 60


@pytest.mark.parametrize("fraction", [0.5, 0.0323, 0.053])
def test_a_published_share_has_about_its_size(fraction: float) -> None:
    documents = (Text(f"part-{n % 17}.jsonl#{n}", "") for n in range(20_000))
    kept = sum(1 for _ in select(documents, Part("flan", "text_rows", fraction=fraction)))
    # Five standard deviations of a binomial count.
    assert abs(kept - 20_000 * fraction) < 5 * (20_000 * fraction * (1 - fraction)) ** 0.5


def test_no_more_is_read_than_wanted() -> None:
    source = iter(DOCUMENTS)
    assert len(list(select(source, Part("s", "text_rows", max_documents=3)))) == 3
    assert next(source).key == "k3"
