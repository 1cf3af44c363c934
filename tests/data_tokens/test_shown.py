"""What is said to be shown to the model is what the ids of the stages stand for."""

import unicodedata
from collections.abc import Iterator

import pytest
from tokens_helpers import SUFFIX

from instella.data.documents import Conversation, Document, Message, Preference, Problem, Text
from instella.data.packing import Drawn
from instella.data.shown import SHOWN
from instella.data.tokenizer import END_OF_TEXT, Encoder
from instella.stages.tokens_chat import encode_rows
from instella.stages.tokens_preference import encode_pairs
from instella.stages.tokens_prompts import encode_prompts
from instella.stages.tokens_text import encode_texts

LENGTH = 400
TURNS = (
    Message("system", " Be brief. "),
    Message("user", " 1 + 1? cafe\u0301"),
    Message("assistant", "2 "),
)
DOCUMENTS: dict[str, Document] = {
    "tokens_text": Problem("k", " 1 + 1? ", "2"),
    "tokens_chat": Conversation("k", TURNS),
    "tokens_preference": Preference("k", "And 2 + 2? ", " 4", "5", TURNS),
    "tokens_prompts": Problem("k", " 1 + 1? ", "2"),
}


def rows_of(kind: str, item: Drawn, encoder: Encoder) -> Iterator[list[int]]:
    """Ids of a stage without padding."""
    if kind == "tokens_prompts":
        (made,) = encode_prompts([item], encoder, LENGTH, SUFFIX)
        assert made.line is not None
        yield made.line["prompt"]["ids"]
        return
    if kind == "tokens_text":
        (made,) = encode_texts([item], encoder)
    elif kind == "tokens_chat":
        (made,) = encode_rows([item], encoder, LENGTH, SUFFIX)
    else:
        (made,) = encode_pairs([item], encoder, LENGTH, SUFFIX)
    for column in made.columns:
        if column.dtype != bool:
            yield [number for number in column.tolist() if number != encoder.pad_id]


@pytest.mark.parametrize("math_prompt", [True, False])
@pytest.mark.parametrize("kind", list(DOCUMENTS))
def test_shown_is_encoded(kind: str, math_prompt: bool, learned: Encoder) -> None:
    item = Drawn(0, "s", DOCUMENTS[kind], math_prompt)
    shown = SHOWN[kind](item, SUFFIX)
    encoded = [learned.decode(ids) for ids in rows_of(kind, item, learned)]
    texts = [unicodedata.normalize("NFC", text) for text in shown]
    if kind == "tokens_text":
        assert encoded == [f"{text}{END_OF_TEXT}" for text in texts]
    else:
        assert encoded == [f"{END_OF_TEXT}{text}" for text in texts]
        assert all((SUFFIX in text) == math_prompt for text in texts)


def test_the_tokenizer_learns_from_plain_texts() -> None:
    assert SHOWN["tokenizer"](Drawn(0, "s", Text("k", "a"), False), SUFFIX) == ("a",)
