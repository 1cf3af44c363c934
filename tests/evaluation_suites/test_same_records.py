"""Records do not depend on the batch, the order, the padding or what else is measured."""

from pathlib import Path

import numpy as np
import pytest
import torch

from instella.canonical import json_bytes
from instella.data.chat import CHAT_TEMPLATE
from instella.data.tokenizer import Encoder, load, train_bpe, write_folder
from instella.evaluation import likelihood
from instella.evaluation.measures import MEASURES, Subject
from instella.network.network import Instella
from instella.recipe.settings import HeldOutSet, Model, Part, Tokenizer

COUNT = 33
WORDS = ("stone", "a", "grid of", "points, then", "win", "Bob 7", "x + 12", "rows")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    learned = train_bpe(["x"], Tokenizer("bpe", vocab_size=300))
    write_folder(folder, learned, 0, 1, CHAT_TEMPLATE)
    return load(folder)


@pytest.fixture(scope="module")
def network() -> Instella:
    """Two small layers with weights from integers, the same everywhere."""
    shape = Model(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        vocab_size=272, max_position_embeddings=160,
    )  # fmt: skip
    made = Instella(shape, "portable-x86").eval()
    generator = np.random.Generator(np.random.PCG64(6))
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 2:
                values = generator.integers(-128, 128, parameter.shape) / 256.0
                parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    return made


def items_of(kind: str) -> list[dict]:
    """Items of mixed lengths, each with what its kind needs."""
    generator = np.random.Generator(np.random.PCG64(9))

    def text(most: int) -> str:
        size = int(generator.integers(1, most + 1))
        return " ".join(WORDS[index] for index in generator.integers(0, len(WORDS), size))

    rows = []
    for number in range(COUNT if kind != "problem" else 9):
        row = {"key": f"k{number}", "question": text(3), "text": text(5), "answer": text(2)}
        row |= {"choices": [text(2) for _ in range(2 + number % 3)], "gold": number % 2}
        rows.append(row | {"chosen": text(2), "rejected": text(2)})
    return rows


@pytest.mark.parametrize("kind", MEASURES)
def test_batch_1_and_64_shuffled_give_identical_records(network, encoder, monkeypatch, kind):
    sampling = {"samples": 4, "max_new_tokens": 6, "temperature": 1.0, "top_p": 0.95}
    settings = HeldOutSet(kind, Part("s", "a"), sequence_length=96, **sampling)
    subject = Subject(network, encoder, settings, 0, "")
    items = items_of(kind)
    monkeypatch.setattr(likelihood, "ROWS_PER_BATCH", 1)
    # Sampling takes all prompts of a call as one batch, so single items are calls of their own.
    single = {item["key"]: MEASURES[kind](subject, [item]) for item in items}
    monkeypatch.setattr(likelihood, "ROWS_PER_BATCH", 64)
    order = np.random.Generator(np.random.PCG64(10)).permutation(len(items)).tolist()
    together = MEASURES[kind](subject, [items[index] for index in order])
    assert len(together) == len(items)
    for record in together:
        assert json_bytes([record]) == json_bytes(single[record["key"]])
    assert len({json_bytes(record["figures"]) for record in together}) > 1 or kind == "problem"


@pytest.mark.parametrize("kind", sorted(set(MEASURES) - {"problem"}))
def test_more_padding_gives_identical_records(network, encoder, kind):
    items = items_of(kind)
    made = []
    for length in (96, 128):
        settings = HeldOutSet(kind, Part("s", "a"), sequence_length=length)
        made.append(MEASURES[kind](Subject(network, encoder, settings, 0, ""), items))
    assert json_bytes(made[0]) == json_bytes(made[1])
