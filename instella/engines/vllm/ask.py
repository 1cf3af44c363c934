"""Answers by vLLM, which lives in an environment of its own, beside the kit's own."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from instella.engines.elsewhere import SECONDS, answered
from instella.engines.vllm.registration import python_path
from instella.errors import BadUse

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venvs/vllm/bin/python"


@dataclass(frozen=True)
class Answer:
    """One answer: tokens, with the end of text if it was reached, and log-probabilities.

    The latter under the plain softmax of all rows of the head, whatever the sampling.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class Sampling:
    """How answers are sampled, where they are not greedy.

    Attributes:
        temperature: above 0.
        top_p: nucleus.
        vocabulary: ids from here on are never sampled.
        seeds: of each prompt, so that an answer hangs on no other.
    """

    temperature: float
    top_p: float
    vocabulary: int
    seeds: Sequence[int]


@dataclass(frozen=True)
class Question:
    """What vLLM is asked.

    Attributes:
        folders: checkpoints of one network; the weights of each are loaded into one engine.
        prompts: token ids of each.
        max_new_tokens: longest answer, end of text included.
        end: id that ends an answer.
        own_process: the engine runs in a process of its own, as it does in production, instead
            of the one that asks; it then takes a minute longer to start.
        sampling: greedy where there is none.
        seconds: to wait; None waits for ever.
    """

    folders: Sequence[Path]
    prompts: Sequence[Sequence[int]]
    max_new_tokens: int
    end: int
    own_process: bool = False
    sampling: Sampling | None = None
    seconds: float | None = SECONDS


def ask(question: Question, python: Path = PYTHON) -> list[list[Answer]]:
    """For each folder the answers to all prompts, in float32.

    Raises:
        BadUse: there is no environment with vLLM.
        KitError: vLLM fails, with the last line that it wrote, or does not answer.
    """
    if not python.is_file():
        raise BadUse(f"{python}: vLLM's environment is not there; make it with ./kit setup vllm")
    request = request_of(question)
    with tempfile.TemporaryDirectory(prefix="vllm-home-") as home:
        found = answered(
            python, ["instella.engines.vllm.inside"], request,
            environment(home, question.own_process),
            silent="vLLM gave no answer", failed="vLLM failed", seconds=question.seconds,
        )  # fmt: skip
    return [[Answer(tuple(a["ids"]), tuple(a["logprobs"])) for a in row] for row in found]


def request_of(question: Question) -> dict[str, Any]:
    """The question as JSON values, as ``inside`` reads them."""
    request: dict[str, Any] = {
        "folders": [str(folder.absolute()) for folder in question.folders],
        "prompts": [list(ids) for ids in question.prompts],
        "max_new_tokens": question.max_new_tokens,
        "end": question.end,
        "length": max(map(len, question.prompts)) + question.max_new_tokens,
    }
    if question.sampling is not None:
        request["sampling"] = asdict(question.sampling)
    return request


def environment(home: str, own_process: bool) -> dict[str, str]:
    """Small, with a home of its own: vLLM writes its cache and its settings there."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": home,
        "PYTHONPATH": python_path(ROOT),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "TOKENIZERS_PARALLELISM": "false",
        # GiB for keys and values.
        "VLLM_CPU_KVCACHE_SPACE": "1",
        # As many threads as OMP_NUM_THREADS says, not one a core: bits hang on their number.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(own_process)),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
