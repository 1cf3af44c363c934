"""A checkpoint's answers to questions of several turns, greedy, in the chat form."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from instella.data.chat import prompt_ids
from instella.data.documents import Message
from instella.data.tokenizer import Encoder
from instella.errors import BadUse
from instella.network.network import Instella
from instella.rollout.generate import generate

# Prompts are padded to a multiple of it, which depends on the prompt alone.
PROMPT_STEP = 32


def answered(
    network: Instella, encoder: Encoder, questions: Sequence[Sequence[str]], new_tokens: int
) -> list[list[str]]:
    """For each question its answers, one a turn; each turn is asked after the ones before.

    Args:
        network: in evaluation.
        encoder: its tokenizer.
        questions: turns of each.
        new_tokens: longest answer.

    Raises:
        BadUse: a prompt that the network cannot read.
    """
    answers: list[list[str]] = [[] for _ in questions]
    for turn in range(max((len(turns) for turns in questions), default=0)):
        calls: dict[int, list[tuple[int, list[int]]]] = defaultdict(list)
        for number, turns in enumerate(questions):
            if turn < len(turns):
                prompt = _prompt(turns, answers[number], encoder)
                calls[_width(network, prompt, new_tokens)].append((number, prompt))
        for width, rows in calls.items():
            groups = generate(
                network, [prompt for _, prompt in rows], samples=1, max_new_tokens=new_tokens,
                temperature=0.0, top_p=1.0, eos_id=encoder.eos_id, vocabulary=encoder.vocab_size,
                max_prompt_tokens=width, stream=[("answers", number) for number, _ in rows],
            )  # fmt: skip
            for (number, _), (response,) in zip(rows, groups, strict=True):
                ids = [token for token in response.ids if token != encoder.eos_id]
                answers[number].append(encoder.decode(ids))
    return answers


def _prompt(turns: Sequence[str], before: Sequence[str], encoder: Encoder) -> list[int]:
    history: list[Message] = []
    for asked, said in zip(turns, before, strict=False):
        history += [Message("user", asked), Message("assistant", said)]
    return prompt_ids(turns[len(before)], encoder, history)


def _width(network: Instella, prompt: Sequence[int], new_tokens: int) -> int:
    room = network.settings.max_position_embeddings - new_tokens
    if len(prompt) > room:
        raise BadUse(
            f"a prompt of {len(prompt)} tokens and {new_tokens} new ones pass the network's "
            f"{network.settings.max_position_embeddings}; lower --max-new-tokens"
        )
    return min(-(-len(prompt) // PROMPT_STEP) * PROMPT_STEP, room)


def turns_of(question: dict[str, Any]) -> list[str]:
    """The turns of a question; BadUse if it has none."""
    turns = question.get("turns")
    if not isinstance(turns, list) or not turns or not all(isinstance(t, str) for t in turns):
        name = question.get("question_id")
        raise BadUse(f"question {name}: has no turns; give the questions of the protocol")
    return turns
