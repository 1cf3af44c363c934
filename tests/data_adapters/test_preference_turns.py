"""Preference pairs behind a conversation, as token rows."""

import numpy as np
import pytest

from instella.data.adapters import texts
from instella.data.chat import CHAT_TEMPLATE, prompt_ids, row_ids
from instella.data.documents import Message, Preference
from instella.data.packing import Drawn
from instella.data.tokenizer import Encoder, load, train_bpe, write_folder
from instella.recipe.settings import Tokenizer
from instella.stages.tokens_preference import encode_pairs

HISTORY = (
    Message("system", "Be brief."),
    Message("user", " Who are you? "),
    Message("assistant", "A spider."),
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder = tmp_path_factory.mktemp("tokenizer")
    data = train_bpe(["The spider has eight legs."] * 3, Tokenizer(kind="bpe", vocab_size=300))
    write_folder(folder, data, 0, 1, CHAT_TEMPLATE)
    return load(folder)


def test_a_prompt_with_earlier_turns_is_the_rows_beginning(encoder: Encoder) -> None:
    whole = (*HISTORY, Message("user", "How many legs?"), Message("assistant", "Eight."))
    ids, mask = row_ids(whole, encoder)
    starts = np.flatnonzero(np.diff(np.array([False, *mask]).astype(np.int8)) == 1)
    assert len(starts) == 2
    assert prompt_ids("How many legs?", encoder, HISTORY) == ids[: starts[1]]
    assert prompt_ids("How many legs?", encoder) == prompt_ids("How many legs?", encoder, ())


def test_pairs_are_rendered_behind_their_history(encoder: Encoder) -> None:
    document = Preference("k", "How many legs?", "Eight.", "Six.", HISTORY)
    (outcome,) = encode_pairs([Drawn(0, "s", document, False)], encoder, 256, "")
    chosen, chosen_mask, rejected, rejected_mask = outcome.columns
    for ids, mask, answer in ((chosen, chosen_mask, "Eight."), (rejected, rejected_mask, "Six.")):
        assert encoder.decode(ids[mask]) == f"{answer}<|endoftext|>"
        assert encoder.decode(ids[: np.argmax(mask)]) == (
            "<|endoftext|><|system|>\nBe brief.\n<|user|>\nWho are you?\n<|assistant|>\n"
            "A spider.<|endoftext|>\n<|user|>\nHow many legs?\n<|assistant|>\n"
        )
    assert outcome.amounts["characters"] == sum(map(len, texts(document)))


def test_every_text_of_a_pair_is_met(encoder: Encoder) -> None:
    document = Preference("k", "Q", "A", "B", HISTORY)
    assert texts(document) == ("Be brief.", " Who are you? ", "A spider.", "Q", "A", "B")
    alone, behind = (
        next(encode_pairs([Drawn(0, "s", item, False)], encoder, 256, ""))
        for item in (Preference("k", "Q", "A", "B"), document)
    )
    assert alone.line is not None and behind.line is not None
    assert alone.line["sha256"] != behind.line["sha256"]
