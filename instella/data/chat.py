r"""Conversations as token rows: the Tülu form with a leading begin of text.

The form is the published one (recipe/FACTS B and I): begin of text (= end of text, id
0), then for each message the role tag and a newline, the content without surrounding
white space, and for user and system a newline; for the assistant the end of text and a
newline, also after the last message. Each of these segments is encoded by itself: the
tag with its newline, the content with its newline, the answer, so an answer's ids never
depend on what stands around it. The loss is on the assistant's content and its end of
text; nothing else is labelled.

A row has exactly one begin of text. Role tags, ``<think>`` and the like are ordinary
text, also inside a content.

Conversations out of the ordinary (``oddities`` names them; the stage counts each):

* two turns of one role in a row, an assistant who begins, a system turn that is not the
  first, an end without an answer: rendered as they stand;
* an empty content: rendered; an empty answer has one label, its end of text;
* no message, or no label left after the cut: no row, dropped and counted;
* any other role: refused.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from instella.data.documents import ROLES, Message
from instella.data.tokenizer import END_OF_TEXT, Encoder, to_uint16
from instella.errors import VerificationError

# White space around a content stays here, unlike in rows, as in the published template.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% set answer = message['role'] == 'assistant' %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('role must be system, user or assistant') }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] }}"
    "{% if answer %}{{ eos_token }}{% endif %}"
    "{% if not answer or not loop.last %}{{ '\n' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


def role_tag(role: str) -> str:
    """The text before a content, newline included.

    Raises:
        VerificationError: a role that the form does not know.
    """
    if role not in ROLES:
        raise VerificationError(f"role {role!r}: expected one of {', '.join(ROLES)}")
    return f"<|{role}|>\n"


def with_suffix(question: str, suffix: str) -> str:
    """A math problem as it is asked: question, a blank, the suffix (recipe/FACTS B)."""
    question = question.strip()
    return f"{question} {suffix}" if suffix else question


def row_ids(messages: Sequence[Message], encoder: Encoder) -> tuple[list[int], list[bool]]:
    """Ids and label mask of a whole conversation, neither cut nor padded."""
    ids, mask = [encoder.eos_id], [False]

    def add(part: list[int], label: bool) -> None:
        ids.extend(part)
        mask.extend([label] * len(part))

    for message in messages:
        content = message.content.strip()
        add(encoder.encode(role_tag(message.role)), False)
        if message.role == "assistant":
            add(answer_ids(content, encoder), True)
            add(encoder.encode("\n"), False)
        else:
            add(encoder.encode(f"{content}\n"), False)
    return ids, mask


def render_row(
    messages: Sequence[Message], encoder: Encoder, length: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """One row of supervised fine-tuning, cut or padded on the right to ``length``.

    Returns:
        Ids, uint16 [length], and label mask, bool [length]; None for a conversation
        that has no label within ``length``.
    """
    ids, mask = row_ids(messages, encoder)
    if not any(mask[:length]):
        return None
    return fit(ids, mask, length, encoder.pad_id)


def fit(
    ids: Sequence[int], mask: Sequence[bool], length: int, pad_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cut or pad on the right: uint16 [length] and bool [length], padding unlabelled."""
    row = np.full(length, pad_id, dtype=np.uint16)
    labels = np.zeros(length, dtype=np.bool_)
    kept = min(length, len(ids))
    row[:kept] = to_uint16(ids[:kept])
    labels[:kept] = mask[:kept]
    return row, labels


def prompt_ids(question: str, encoder: Encoder, history: Sequence[Message] = ()) -> list[int]:
    """Begin of text, one user turn and the assistant's tag: what generation continues.

    Equal to the ids before the first label of a training row with this user turn; with a
    ``history`` of earlier turns, to the ids before the last answer's.
    """
    ids, _ = row_ids((*history, Message("user", question)), encoder)
    return [*ids, *encoder.encode(role_tag("assistant"))]


def answer_ids(answer: str, encoder: Encoder) -> list[int]:
    """The labelled ids of an answer: its content and the end of text."""
    return [*encoder.encode(answer.strip()), encoder.eos_id]


def render_text(messages: Sequence[Message]) -> str:
    """The text that a row's ids after the begin of text stand for, before NFC and cut.

    The end of text is written out as ``<|endoftext|>``.
    """
    parts = []
    for message in messages:
        end = END_OF_TEXT + "\n" if message.role == "assistant" else "\n"
        parts.append(role_tag(message.role) + message.content.strip() + end)
    return "".join(parts)


def oddities(messages: Sequence[Message]) -> tuple[str, ...]:
    """Names of what is out of the ordinary in a conversation, in a fixed order."""
    roles = [message.role for message in messages]
    found = {
        "no_message": not roles,
        "empty_content": any(not message.content.strip() for message in messages),
        "repeated_role": any(left == right for left, right in pairwise(roles)),
        "assistant_first": next((role for role in roles if role != "system"), "") == "assistant",
        "system_not_first": "system" in roles[1:],
        "no_answer_at_end": bool(roles) and roles[-1] != "assistant",
        "special_token_in_text": any(END_OF_TEXT in message.content for message in messages),
    }
    return tuple(name for name, holds in found.items() if holds)
