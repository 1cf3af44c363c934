"""Networks to measure: a small real one and stand-ins whose scores are known beforehand."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from instella.evaluation.measures import Subject
from instella.network.network import Instella
from instella.recipe.settings import HeldOutSet, Model, Part

ROWS = 272
NUMERICS = "portable-x86"
SHAPE = Model(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    vocab_size=ROWS,
    max_position_embeddings=96,
)


def real_network(shape: Model = SHAPE) -> Instella:
    """Weights from integers, so that they are the same everywhere."""
    network = Instella(shape, NUMERICS).eval()
    generator = np.random.Generator(np.random.PCG64(5))
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 2:
                values = generator.integers(-128, 128, parameter.shape) / 256.0
                parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    return network


class Constant:
    """The same logit for every id."""

    def __call__(self, ids: Tensor) -> Tensor:
        return torch.zeros(*ids.shape, ROWS)


class Random:
    """Logits that have nothing to do with the text."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(1)

    def __call__(self, ids: Tensor) -> Tensor:
        return torch.randn(*ids.shape, ROWS, generator=self.generator)


class Diverged:
    def __call__(self, ids: Tensor) -> Tensor:
        return torch.full((*ids.shape, ROWS), math.nan)


class Table:
    """Given probabilities of some ids, the rest shared evenly among the others.

    Args:
        first: probability of an id in rows whose second id is ``marker``.
        other: in all other rows.
    """

    def __init__(self, marker: int, first: dict[int, float], other: dict[int, float]) -> None:
        self.marker = marker
        self.logits = torch.stack([self._log(other), self._log(first)])

    @staticmethod
    def _log(given: dict[int, float]) -> Tensor:
        rest = (1 - sum(given.values())) / (ROWS - len(given))
        return torch.tensor([given.get(token, rest) for token in range(ROWS)]).log()

    def __call__(self, ids: Tensor) -> Tensor:
        marked = (ids[:, 1] == self.marker).long()
        return self.logits[marked][:, None].expand(*ids.shape, ROWS)


class Writer:
    """Answers every prompt with the same ids, then the last of them for ever."""

    settings = SHAPE
    numerics = NUMERICS

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def hidden(self, ids: Tensor, positions: Tensor, mask: Tensor, cache) -> Tensor:
        if cache.used == 0:
            self.width = ids.shape[1]
        step = cache.used - self.width + 1 if cache.used else 0
        states = torch.zeros(*ids.shape, ROWS)
        states[..., self.ids[min(step, len(self.ids) - 1)]] = 100.0
        return states

    def lm_head(self, states: Tensor) -> Tensor:
        return states


@dataclass(frozen=True)
class Bench:
    """Makes subjects of networks with one tokenizer."""

    encoder: object

    def subject(self, network, kind, length=64, suffix="", seed=0, **changes) -> Subject:
        return Subject(network, self.encoder, held_out(kind, length, **changes), seed, suffix)


def held_out(kind: str, length: int = 64, **changes) -> HeldOutSet:
    return HeldOutSet(kind, Part("source", "adapter"), sequence_length=length, **changes)


def choice(key: str, choices: list[str], gold: int, question: str = "q") -> dict:
    return {"key": key, "question": question, "choices": choices, "gold": gold}


ITEMS = {
    "text": [{"key": f"t{n}", "text": f"text {n} of some"} for n in range(4)],
    "answer": [{"key": f"a{n}", "question": f"{n}?", "answer": f"it is {n}"} for n in range(3)],
    "preference": [
        {"key": f"p{n}", "question": f"{n}?", "chosen": f"yes {n}", "rejected": "no"}
        for n in range(3)
    ],
    "choice": [choice(f"c{n}", ["one", "two", str(n)], n, f"which {n}") for n in range(3)],
    "problem": [{"key": f"m{n}", "question": f"{n}+1", "answer": str(n + 1)} for n in range(3)],
}
