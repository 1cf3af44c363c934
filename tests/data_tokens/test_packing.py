"""Documents of a part, the ledger."""

import pytest

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
from instella.data.packing import Drawn, plain_text, split_options
from instella.data.select import Selection
from instella.data.units import Outcome
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Part

PART = Part(source="book", adapter="text_rows")


def test_math_prompt_is_taken_out_of_the_options() -> None:
    part = Part(source="s", adapter="chat_rows", options={"math_prompt": True, "files": "a"})
    bare, math = split_options(part)
    assert math is True and bare.options == {"files": "a"}
    assert part.options == {"math_prompt": True, "files": "a"}
    assert split_options(PART) == (PART, False)
    assert split_options(PART, True) == (PART, True)
    with pytest.raises(BadUse, match="math_prompt is 'yes'"):
        split_options(Part(source="s", adapter="x", options={"math_prompt": "yes"}))


def test_outcomes_are_counted_by_part() -> None:
    ledger = Ledger([PART, PART])
    ledger.selected(1, Selection(read=9, selected=4, drawn=8))
    ledger.count(Outcome(0, held="exam/1"))
    ledger.count(Outcome(0, dropped="empty"))
    ledger.count(Outcome(1, line={}, amounts={"tokens": 5}, noted={"cut": 1}))
    ledger.count(Outcome(1, line={}, amounts={"tokens": 2}))
    report = ledger.report(windows=1)
    first, second = report["parts"]
    assert first["contaminated"] == {"exam": 1} and first["dropped"] == {"empty": 1}
    assert first["documents"] == 0 and second["documents"] == 2 and second["tokens"] == 7
    assert second["noted"] == {"cut": 1}
    assert (second["read"], second["selected"], second["drawn"]) == (9, 4, 8)
    assert report["documents"] == 2 and report["tokens"] == 7 and report["windows"] == 1
    assert report["contaminated"] == {"exam": 1} and report["drawn"] == 8


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
    ledger.count(Outcome(0, dropped="empty"))
    with pytest.raises(VerificationError, match=r"no document is left .*'empty': 1"):
        ledger.refuse_empty("tokens_sft")
