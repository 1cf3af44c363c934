"""vLLM's greedy answers against those of the kit's own generator, token by token."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from instella.engines.vllm.ask import PYTHON, Answer, Question, ask
from instella.network.folder import load_folder
from instella.rollout.generate import Response, generate

# vLLM has no numerics class of the kit's; this one is the machine's own products too.
NUMERICS = "native-cpu"


@dataclass(frozen=True)
class Agreement:
    """How far two engines agree on one checkpoint.

    Attributes:
        answers: how many were compared.
        equal: of them, those with the same tokens.
        tokens: of the equal answers.
        mean, largest: absolute difference of a token's log-probability in those.
    """

    answers: int
    equal: int
    tokens: int
    mean: float
    largest: float


def agreements(question: Question, vocabulary: int, python: Path = PYTHON) -> list[Agreement]:
    """Ask both engines for greedy answers in float32; one agreement a checkpoint.

    Args:
        question: checkpoints and prompts.
        vocabulary: ids from here on are never sampled by the kit.
        python: of an environment with vLLM.

    Raises:
        As ``ask``.
    """
    theirs = ask(question, python)
    found = []
    for folder, answers in zip(question.folders, theirs, strict=True):
        found.append(_compared(_ours(folder, question, vocabulary), answers))
    return found


def _ours(folder: Path, question: Question, vocabulary: int) -> list[Response]:
    network = load_folder(folder, NUMERICS).float().eval()
    groups = generate(
        network,
        question.prompts,
        samples=1,
        max_new_tokens=question.max_new_tokens,
        temperature=0.0,
        top_p=1.0,
        eos_id=question.end,
        vocabulary=vocabulary,
        max_prompt_tokens=max(map(len, question.prompts)),
        stream=[["agree", number] for number in range(len(question.prompts))],
    )
    return [responses[0] for responses in groups]


def _compared(ours: Sequence[Response], theirs: Sequence[Answer]) -> Agreement:
    pairs = zip(ours, theirs, strict=True)
    equal = [(one, two) for one, two in pairs if one.ids == two.ids]
    apart = [np.abs(one.logprobs.astype(np.float64) - two.logprobs) for one, two in equal]
    every = np.concatenate(apart) if apart else np.array([np.nan])
    return Agreement(
        len(ours), len(equal), sum(map(len, apart)), float(every.mean()), float(every.max())
    )
