"""Order, packing and the ledger."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest

from instella.canonical import sha256_bytes, write_jsonl
from instella.data.documents import (
    Choice,
    Conversation,
    Document,
    Message,
    Preference,
    Problem,
    Text,
)
from instella.data.ledger import Ledger, clip
from instella.data.packing import (
    Drawn,
    RowSpool,
    Spool,
    admitted,
    draw,
    pack_text,
    plain_text,
    split_options,
)
from instella.data.tokenizer import Encoder
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Part

PART = Part(source="book", adapter="text_rows")
PIECES = (
    "the spider",
    "Cafe\u0301 \r\n",
    "365 <|endoftext|> days",
    "",
    " \n",
    "日本語 🙂",
    "x" * 300,
)


class Forbidden:
    """Holds every document with a word in it, and remembers what it was asked."""

    def __init__(self, word: str = "forbidden") -> None:
        self.word = word
        self.asked: list[str] = []

    def holds(self, document: Document) -> str | None:
        self.asked.append(document.key)
        return "exam/1" if self.word in plain_text(document) else None


def drawn_texts(count: int = 300) -> list[Drawn]:
    documents = [Text(f"k{i}", f"{PIECES[i % len(PIECES)]}") for i in range(count)]
    documents[7] = Text("k7", "a forbidden text")
    return [Drawn(0, "book", document, False) for document in documents]


def pack(
    tmp_path: Path, encoder: Encoder, max_tokens: int | None = None, block: int = 64
) -> tuple[np.ndarray, list[dict], dict]:
    ledger = Ledger([PART])
    with Spool(tmp_path / "tokens.part", "uint16") as stream:
        entries = list(
            pack_text(drawn_texts(), Forbidden(), encoder, ledger, stream, max_tokens, block)
        )
        return np.array(stream.array()), entries, ledger.report()


@pytest.mark.parametrize("max_tokens", [None, 500])
def test_block_size_changes_nothing(
    tmp_path: Path, learned: Encoder, max_tokens: int | None
) -> None:
    tokens, entries, report = pack(tmp_path, learned, max_tokens, block=1)
    assert report["contaminated"] == {"exam": 1}
    for block in (64, 1000):
        again = pack(tmp_path, learned, max_tokens, block)
        assert again[0].tobytes() == tokens.tobytes()
        assert again[1:] == (entries, report)


def test_entries_tile_the_stream_and_decode_to_the_documents(
    tmp_path: Path, learned: Encoder
) -> None:
    tokens, entries, report = pack(tmp_path, learned)
    texts = {item.document.key: plain_text(item.document) for item in drawn_texts()}
    assert entries[0]["start"] == 0 and entries[-1]["end"] == len(tokens)
    assert [item["end"] for item in entries[:-1]] == [item["start"] for item in entries[1:]]
    for item in entries:
        text = texts[item["key"]]
        span = tokens[item["start"] : item["end"]]
        assert span[-1] == learned.eos_id
        assert learned.decode(span[:-1]) == unicodedata.normalize("NFC", text)
        assert item["sha256"] == sha256_bytes(text.encode("utf-8"))
    empty = sum(not text.strip() for text in texts.values())
    assert report["documents"] == len(entries) == len(texts) - empty - 1
    assert report["dropped"] == {"empty": empty}
    assert report["tokens"] == len(tokens)
    assert report["noted"] == {
        "special_token_in_text": sum("<|endoftext|>" in text for text in texts.values())
    }


def test_packing_stops_behind_the_document_that_reaches_the_limit(
    tmp_path: Path, learned: Encoder
) -> None:
    everything, entries, _ = pack(tmp_path, learned)
    tokens, some, _ = pack(tmp_path, learned, max_tokens=50)
    assert some == entries[: len(some)]
    assert some[-1]["start"] < 50 <= some[-1]["end"] == len(tokens)
    assert tokens.tolist() == everything[: len(tokens)].tolist()


def test_documents_behind_the_stop_are_not_even_guarded(tmp_path: Path, learned: Encoder) -> None:
    guard, ledger = Forbidden(), Ledger([PART])
    with Spool(tmp_path / "tokens.part", "uint16") as stream:
        list(pack_text(drawn_texts(), guard, learned, ledger, stream, 20, block=8))
    assert len(guard.asked) <= 16


def test_spool_removes_its_file_and_refuses_another_dtype(tmp_path: Path) -> None:
    with Spool(tmp_path / "x.part", "uint16") as stream:
        stream.append(np.array([1, 65_535], dtype=np.uint16))
        with pytest.raises(VerificationError, match="int64 added to uint16"):
            stream.append(np.array([1], dtype=np.int64))
        assert stream.array().tolist() == [1, 65_535]
    assert list(tmp_path.iterdir()) == []


def test_rows_are_saved_as_plain_arrays(tmp_path: Path) -> None:
    scratch, output = tmp_path / "scratch", tmp_path / "output"
    scratch.mkdir()
    output.mkdir()
    with RowSpool(scratch, "chosen_", 3) as rows:
        for number in range(4):
            ids = np.full(3, number, dtype=np.uint16)
            rows.append(ids, ids > 1)
        rows.save(output)
    ids = np.load(output / "chosen_input_ids.npy", allow_pickle=False)
    mask = np.load(output / "chosen_label_mask.npy", allow_pickle=False)
    assert ids.dtype == np.uint16 and ids.shape == (4, 3) and ids[3].tolist() == [3, 3, 3]
    assert mask.dtype == np.bool_ and mask.tolist() == [[n > 1] * 3 for n in range(4)]


def sources(tmp_path: Path) -> dict[str, Path]:
    for name, count in (("book", 12), ("news", 5)):
        (tmp_path / name).mkdir()
        rows = [{"text": f"{name} {number}"} for number in range(count)]
        write_jsonl(tmp_path / name / "rows.jsonl", rows)
    return {f"source_{name}": tmp_path / name for name in ("book", "news")}


def test_order_is_the_permutation_of_all_parts(tmp_path: Path) -> None:
    inputs = sources(tmp_path)
    parts = [PART, Part(source="news", adapter="text_rows", max_documents=3)]
    drawn = draw(parts, inputs, seed=7)
    texts = [f"book {n}" for n in range(12)] + [f"news {n}" for n in range(3)]
    order = np.random.Generator(np.random.PCG64(7)).permutation(15)
    assert [plain_text(item.document) for item in drawn] == [texts[index] for index in order]
    assert {(item.part, item.source) for item in drawn} == {(0, "book"), (1, "news")}
    assert draw(parts, inputs, seed=8) != drawn == draw(parts, inputs, seed=7)


def test_no_document_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"")
    with pytest.raises(VerificationError, match=r"parts \(book\) hold no document"):
        draw([PART], {"source_book": tmp_path}, 0)


def test_math_prompt_is_taken_out_of_the_options() -> None:
    part = Part(source="s", adapter="chat_rows", options={"math_prompt": True, "files": "a"})
    bare, math = split_options(part)
    assert math is True and bare.options == {"files": "a"}
    assert part.options == {"math_prompt": True, "files": "a"}
    assert split_options(PART) == (PART, False)
    assert split_options(PART, True) == (PART, True)
    with pytest.raises(BadUse, match="math_prompt is 'yes'"):
        split_options(Part(source="s", adapter="x", options={"math_prompt": "yes"}))


def test_guarded_documents_are_counted_by_set() -> None:
    ledger = Ledger([PART])
    left = list(admitted(drawn_texts(10), Forbidden(), ledger))
    assert [item.document.key for item in left] == [f"k{n}" for n in range(10) if n != 7]
    assert ledger.report()["parts"][0]["contaminated"] == {"exam": 1}


def test_a_part_of_another_kind_is_refused() -> None:
    item = Drawn(0, "book", Text("k", "t"), False)
    with pytest.raises(BadUse, match="yields Text, this stage needs Conversation"):
        item.of_kind(Conversation)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (Text("k", " as it is \n"), " as it is \n"),
        (Conversation("k", (Message("user", " q "), Message("assistant", "a\n"))), "q\na"),
        (Problem("k", "1+1?", "2"), "1+1?\n2"),
        (Preference("k", "q", "good", "bad"), "q\ngood"),
        (Choice("k", "q", ("no", "yes"), 1), "q\nyes"),
    ],
)
def test_plain_text_of_each_kind(document: Document, text: str) -> None:
    assert plain_text(document) == text


def test_clip_keeps_what_lies_before_the_cut() -> None:
    entries = [
        {"key": k, "start": s, "end": e} for k, s, e in (("a", 0, 4), ("b", 4, 9), ("c", 9, 12))
    ]
    assert [(item["key"], item["end"]) for item in clip(entries, 8)] == [("a", 4), ("b", 8)]
    assert [item["key"] for item in clip(entries, 9)] == ["a", "b"]


def test_an_empty_ledger_tells_why() -> None:
    ledger = Ledger([PART])
    ledger.dropped(0, "empty")
    with pytest.raises(VerificationError, match=r"no document is left .*'empty': 1"):
        ledger.refuse_empty("tokens_sft")
