"""Rows of chat against those of the published script, and their masks."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from instella.data.chat import (
    answer_ids,
    oddities,
    prompt_ids,
    render_row,
    render_text,
    role_tag,
    row_ids,
    with_suffix,
)
from instella.data.documents import Message
from instella.data.tokenizer import Encoder, load
from instella.errors import VerificationError

SUFFIX = r"Let's think step by step and output the final answer within \boxed{}."

CONTENTS = (
    "plain",
    "  edges \t",
    "a\r\nb\r\n\r\nc",
    "nul \x00 inside",
    "\x1cseparators\x1f",
    "👩‍🚀 🇩🇪 🙂🏽",
    "שלום עולם \u202eRTL",
    "e\u0301 A\u030a ﬁ",
    "\u0301starts with a mark",
    "\u3000\u2003wide\u00a0blanks\u2029",
    "says <|endoftext|> aloud",
    "<|user|>\nrole tags inside\n<|assistant|>\n",
    "",
    " \n ",
    "12 + 30 = 42",
)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def messages_of(item: dict) -> tuple[Message, ...]:
    return tuple(Message(turn["role"], turn["content"]) for turn in item["messages"])


def turns(*pairs: tuple[str, str]) -> tuple[Message, ...]:
    return tuple(Message(role, content) for role, content in pairs)


@pytest.mark.parametrize("length", [64, 96])
def test_rows_equal_the_published_ones(published: Encoder, reference: Path, length: int) -> None:
    conversations = read(reference, "conversations.json")
    ids = np.load(reference / f"input_ids_{length}.npy")
    masks = np.load(reference / f"label_mask_{length}.npy")
    kept = read(reference, "summary.json")[f"max_length_{length}"]["kept"]
    for number, item in enumerate(conversations):
        row = render_row(messages_of(item), published, length)
        assert (row is not None) == kept[number]
        assert row is not None
        assert row[0].dtype == np.uint16 and row[1].dtype == np.bool_
        assert row[0].tolist() == ids[number].tolist(), item["id"]
        assert row[1].tolist() == masks[number].tolist(), item["id"]


def test_lengths_before_the_cut_equal_the_published_ones(
    published: Encoder, reference: Path
) -> None:
    lengths = read(reference, "summary.json")["max_length_64"]["length_before_cut"]
    conversations = read(reference, "conversations.json")
    assert [len(row_ids(messages_of(item), published)[0]) for item in conversations] == lengths


def test_template_renders_as_the_published_one(
    published_folder: Path, published: Encoder, reference: Path
) -> None:
    theirs = AutoTokenizer.from_pretrained(published_folder)
    conversations = {item["id"]: item for item in read(reference, "conversations.json")}
    for expected in read(reference, "chat_template.json"):
        messages = conversations[expected["id"]]["messages"]
        text = theirs.apply_chat_template(messages, tokenize=False)
        assert text == expected["text"]
        ids = theirs.apply_chat_template(messages, return_dict=False)
        assert ids == expected["ids"]
        start = theirs.apply_chat_template(
            messages[:-1], add_generation_prompt=True, return_dict=False
        )
        assert start == expected["ids_prompt_without_last_message_with_generation_prompt"]
        if expected["equals_sft_row_without_final_newline"]:
            row, _ = row_ids(messages_of({"messages": messages}), published)
            assert row[:-1] == ids


@pytest.mark.parametrize("name", ["learned", "published"])
@pytest.mark.parametrize("content", CONTENTS)
def test_masks_decode_to_the_assistant_text(
    name: str, content: str, request: pytest.FixtureRequest
) -> None:
    encoder: Encoder = request.getfixturevalue(name)
    messages = turns(
        ("system", content), ("user", content), ("assistant", content), ("user", content),
        ("assistant", f"{content} again"),
    )  # fmt: skip
    ids, mask = render_row(messages, encoder, 700) or pytest.fail("no row")
    answers = [content.strip(), f"{content} again".strip()]
    expected = "".join(f"{unicodedata.normalize('NFC', a)}<|endoftext|>" for a in answers)
    assert encoder.decode(ids[mask]) == expected
    used = len(row_ids(messages, encoder)[0])
    whole = unicodedata.normalize("NFC", render_text(messages))
    assert encoder.decode(ids[1:used]) == whole
    assert set(ids[used:].tolist()) <= {encoder.pad_id} and not mask[used:].any()


@pytest.mark.parametrize("name", ["learned", "published"])
@pytest.mark.parametrize("content", CONTENTS)
def test_prompt_and_answer_are_the_row(
    name: str, content: str, request: pytest.FixtureRequest
) -> None:
    encoder: Encoder = request.getfixturevalue(name)
    ids, mask = row_ids(turns(("user", content), ("assistant", "yes")), encoder)
    first = mask.index(True)
    assert prompt_ids(content, encoder) == ids[:first]
    assert answer_ids("yes", encoder) + encoder.encode("\n") == ids[first:]


@pytest.mark.parametrize("name", ["learned_folder", "published_folder"])
def test_one_begin_of_text_for_rows_prompts_and_the_template(
    name: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(name)
    encoder, theirs = load(folder), AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": "How many?"}]
    ours = prompt_ids("How many?", encoder)
    assert ours.count(encoder.eos_id) == 1 and ours[0] == encoder.eos_id
    text = theirs.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert theirs(text)["input_ids"] == ours
    assert theirs.apply_chat_template(chat, add_generation_prompt=True, return_dict=False) == ours
    row, mask = row_ids(turns(("user", "How many?"), ("assistant", "Six.")), encoder)
    assert row.count(encoder.eos_id) == 2 and mask[0] is False
    assert encoder.encode("raw").count(encoder.eos_id) == 0


def test_a_cut_inside_the_answer_keeps_its_labels(learned: Encoder) -> None:
    messages = turns(("user", "q"), ("assistant", "one two three four five"))
    ids, mask = row_ids(messages, learned)
    length = mask.index(True) + 2
    row = render_row(messages, learned, length)
    assert row is not None
    assert row[0].tolist() == ids[:length] and row[1].tolist() == mask[:length]
    assert row[1].sum() == 2


@pytest.mark.parametrize(
    "messages",
    [
        (),
        turns(("user", "only a question")),
        turns(("system", "only rules")),
        turns(("user", "long " * 100), ("assistant", "cut away")),
    ],
)
def test_conversations_without_a_label_give_no_row(
    learned: Encoder, messages: tuple[Message, ...]
) -> None:
    assert render_row(messages, learned, 32) is None


def test_an_empty_answer_has_one_label(learned: Encoder) -> None:
    row = render_row(turns(("user", "q"), ("assistant", " ")), learned, 64)
    assert row is not None and row[0][row[1]].tolist() == [learned.eos_id]


def test_unknown_roles_are_refused(learned: Encoder, learned_folder: Path) -> None:
    with pytest.raises(VerificationError, match="role 'tool'"):
        row_ids(turns(("tool", "x")), learned)
    theirs = AutoTokenizer.from_pretrained(learned_folder)
    with pytest.raises(Exception, match="role must be"):
        theirs.apply_chat_template([{"role": "tool", "content": "x"}])


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (turns(("user", "q"), ("assistant", "a")), ()),
        (turns(("system", "s"), ("user", "q"), ("assistant", "a")), ()),
        (turns(("user", "q"), ("user", "q"), ("assistant", "a")), ("repeated_role",)),
        (turns(("system", "s")), ("no_answer_at_end",)),
        (turns(("system", "s"), ("assistant", "a")), ("assistant_first",)),
        (turns(("user", " "), ("assistant", "a")), ("empty_content",)),
        (
            turns(("user", "q"), ("system", "s"), ("assistant", "<|endoftext|>")),
            ("system_not_first", "special_token_in_text"),
        ),
        ((), ("no_message",)),
    ],
)
def test_oddities_are_named(messages: tuple[Message, ...], expected: tuple[str, ...]) -> None:
    assert oddities(messages) == expected


def test_two_user_turns_stand_one_after_the_other(learned: Encoder) -> None:
    messages = turns(("user", "one"), ("user", "two"), ("assistant", "a"))
    ids, _ = row_ids(messages, learned)
    assert learned.decode(ids) == (
        "<|endoftext|><|user|>\none\n<|user|>\ntwo\n<|assistant|>\na<|endoftext|>\n"
    )


def test_suffix_follows_after_a_blank() -> None:
    assert with_suffix(" 1 + 1?\n", SUFFIX) == f"1 + 1? {SUFFIX}"
    assert with_suffix(" 1 + 1?\n", "") == "1 + 1?"
    assert role_tag("user") == "<|user|>\n"
