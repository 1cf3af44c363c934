"""Greedy answers by vLLM, which lives in an environment of its own, beside the kit's own."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from instella.engines.elsewhere import answered
from instella.engines.vllm.registration import python_path
from instella.errors import BadUse

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venvs/vllm/bin/python"


@dataclass(frozen=True)
class Answer:
    """One greedy answer: tokens, with the end of text if it was reached, and log-probabilities."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


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
    """

    folders: Sequence[Path]
    prompts: Sequence[Sequence[int]]
    max_new_tokens: int
    end: int
    own_process: bool = False


def ask(question: Question, python: Path = PYTHON) -> list[list[Answer]]:
    """For each folder the answers to all prompts, in float32.

    Raises:
        BadUse: there is no environment with vLLM.
        KitError: vLLM fails, with the last line that it wrote, or does not answer.
    """
    if not python.is_file():
        raise BadUse(f"{python}: vLLM's environment is not there; make it with ./kit setup vllm")
    longest = max(map(len, question.prompts))
    request = {
        "folders": [str(folder.absolute()) for folder in question.folders],
        "prompts": [list(ids) for ids in question.prompts],
        "max_new_tokens": question.max_new_tokens,
        "end": question.end,
        "length": longest + question.max_new_tokens,
    }
    with tempfile.TemporaryDirectory(prefix="vllm-home-") as home:
        found = answered(
            python, ["instella.engines.vllm.inside"], request,
            _environment(home, question.own_process),
            silent="vLLM gave no answer", failed="vLLM failed",
        )  # fmt: skip
    return [[Answer(tuple(a["ids"]), tuple(a["logprobs"])) for a in row] for row in found]


def _environment(home: str, own_process: bool) -> dict[str, str]:
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
        "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(own_process)),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
