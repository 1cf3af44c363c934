"""What a published filter leaves out is counted and reaches a stage's report."""

from pathlib import Path

import pytest

from instella.data.adapters import read_all
from instella.data.contamination import Guard
from instella.data.documents import Conversation, Message, Preference
from instella.data.ledger import Ledger
from instella.data.mixture import spool
from instella.data.packing import documents_of, plain_text
from instella.data.select import Selection
from instella.errors import BadUse
from instella.recipe.settings import HeldOutSet, Part
from instella.stages.heldout import _documents as held_out

from .samples import SAMPLES, pair, write


def test_dropped_rows_reach_the_report(tmp_path: Path) -> None:
    sample = SAMPLES["am_deepseek"]
    source = tmp_path / "source"
    write(source, sample.file, sample.rows)
    parts = (Part("am", "am_deepseek", fraction=0.9999, repeat=2),)
    inputs = {"source_am": source}
    counts = Selection()
    kept = list(documents_of(parts[0], inputs, counts))
    assert all(isinstance(document, Conversation) for document in kept)
    assert counts == Selection(2, 2, 4, {"not_english": 1, "no_language": 1})
    assert len(list(read_all(parts[0], source))) == counts.read + sum(counts.filtered.values())
    ledger = Ledger(parts)
    ledger.selected(0, counts)
    for _ in kept:
        ledger.kept(0)
    report = ledger.report()
    assert report["dropped"] == {"no_language": 1, "not_english": 1}
    assert report["parts"][0]["dropped"] == report["dropped"]
    assert (report["read"], report["drawn"], report["documents"]) == (2, 4, 4)
    mixture = spool(parts, inputs, 1, tmp_path / "spool")
    assert mixture.selections == (counts,)
    # A spool found again tells the same.
    assert spool(parts, inputs, 1, tmp_path / "spool").selections == (counts,)


def test_a_preference_with_earlier_turns_passes_through_a_spool(tmp_path: Path) -> None:
    sample = SAMPLES["olmo2_preferences"]
    source = tmp_path / "source"
    write(source, sample.file, sample.rows)
    part = Part("pairs", "olmo2_preferences")
    mixture = spool((part,), {"source_pairs": source}, 1, tmp_path / "spool")
    spooled = [item.document for n in range(len(mixture.units)) for item in mixture.unit(n)]
    read = list(read_all(part, source))
    assert sorted(spooled, key=lambda d: d.key) == sorted(read, key=lambda d: d.key)
    assert any(isinstance(item, Preference) and item.history for item in spooled)


def test_plain_text_has_the_earlier_turns() -> None:
    document = Preference(
        "k", "Q ", " A", "B", (Message("user", "one "), Message("assistant", "two"))
    )
    assert plain_text(document) == "one\ntwo\nQ\nA"


def test_earlier_turns_are_compared_with_held_out_items() -> None:
    guard = Guard([("exam/1", "How many legs has a spider", "eight"), ("exam/2", "Why", "")], 5)
    for asked in ("Tell me how many legs has a spider", "why"):
        turns = (Message("user", asked), Message("assistant", "No."))
        assert guard.holds(Preference("k", "And now?", "A", "B", turns)) is not None
        assert guard.holds(Preference("k", "And now?", "A", "B", turns[1:])) is None


def test_held_out_preferences_have_no_earlier_turns(tmp_path: Path) -> None:
    part = Part("pairs", "olmo2_preferences")
    item_set = HeldOutSet(kind="preference", part=part)
    write(tmp_path, "a.jsonl", [{"chosen": pair("Q", "1"), "rejected": pair("Q", "2")}])
    assert len(list(held_out("pairs", item_set, tmp_path))) == 1
    turns = pair("P", "0")
    write(
        tmp_path,
        "a.jsonl",
        [{"chosen": turns + pair("Q", "1"), "rejected": turns + pair("Q", "2")}],
    )
    with pytest.raises(BadUse, match="turns before its question"):
        list(held_out("pairs", item_set, tmp_path))
