"""The texts of a document as a stage shows them to the model.

What a row, a pair or a prompt says is made here, for the stages that encode it and for
those who look for a text in what was encoded.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from instella.data.chat import render_text, role_tag, with_suffix
from instella.data.documents import Conversation, Message, Preference, Problem
from instella.data.packing import Drawn, plain_text


def question_of(item: Drawn, question: str, suffix: str) -> str:
    """A question as it is asked: with the recipe's suffix where the part is of math problems."""
    return with_suffix(question, suffix if item.math_prompt else "")


def turns_of(item: Drawn, suffix: str) -> tuple[Message, ...]:
    """A conversation's messages; of a math part, with the suffix after user turns."""
    messages = item.of_kind(Conversation).messages
    if not item.math_prompt:
        return messages
    return tuple(
        replace(message, content=with_suffix(message.content, suffix))
        if message.role == "user"
        else message
        for message in messages
    )


def _rows(item: Drawn, suffix: str) -> tuple[str, ...]:
    return (render_text(turns_of(item, suffix)),)


def _pairs(item: Drawn, suffix: str) -> tuple[str, ...]:
    pair = item.of_kind(Preference)
    asked = (*pair.history, Message("user", question_of(item, pair.question, suffix)))
    answers = (pair.chosen, pair.rejected)
    rows = (render_text((*asked, Message("assistant", answer))) for answer in answers)
    # Unlike in a conversation's row, nothing stands behind the answer's end of text.
    return tuple(row.removesuffix("\n") for row in rows)


def _prompts(item: Drawn, suffix: str) -> tuple[str, ...]:
    question = question_of(item, item.of_kind(Problem).question, suffix)
    return (render_text((Message("user", question),)) + role_tag("assistant"),)


SHOWN: Mapping[str, Callable[[Drawn, str], tuple[str, ...]]] = {
    "tokenizer": lambda item, _: (plain_text(item.document),),
    "tokens_text": lambda item, _: (plain_text(item.document),),
    "tokens_chat": _rows,
    "tokens_preference": _pairs,
    "tokens_prompts": _prompts,
}
"""By kind of stage: the texts that a document's ids stand for, before NFC and before any cut."""
