"""The prompt that is derived from an item is the one that the measures show to the network."""

import pytest
import torch
from evaluation_helpers import ITEMS, ROWS, Writer

from instella.canonical import sha256_bytes
from instella.data.chat import answer_ids
from instella.evaluation.measures import MEASURES
from instella.evaluation.prompts import prompt_hash, prompt_of

SUFFIX = "Box it."


class Shown:
    """Keeps the rows of ids that it is given."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def __call__(self, ids):
        self.rows += ids.tolist()
        return torch.zeros(*ids.shape, ROWS)


class ShownWriter(Writer):
    def __init__(self) -> None:
        super().__init__([0])
        self.rows: list[list[int]] = []

    def hidden(self, ids, positions, mask, cache):
        self.rows += ids.tolist()
        return super().hidden(ids, positions, mask, cache)


@pytest.mark.parametrize("kind", MEASURES)
def test_prompts_are_those_that_are_shown(bench, kind):
    network = ShownWriter() if kind == "problem" else Shown()
    subject = bench.subject(network, kind, suffix=SUFFIX, max_new_tokens=2)
    MEASURES[kind](subject, ITEMS[kind])
    encode = bench.encoder.encode
    for item in ITEMS[kind]:
        ids = prompt_of(kind, item, bench.encoder, SUFFIX)
        scored = {
            "text": lambda item: encode(item["text"]),
            "answer": lambda item: answer_ids(item["answer"], bench.encoder)[:-1],
            "preference": lambda item: answer_ids(item["chosen"], bench.encoder)[:-1],
            "choice": lambda item: encode(" " + item["choices"][item["gold"]])[:-1],
            "problem": lambda item: [],
        }[kind](item)
        whole = [*ids, *scored]
        # Rows are padded: on the right where they are scored, on the left where sampled.
        if kind == "problem":
            assert any(row[len(row) - len(whole) :] == whole for row in network.rows)
        else:
            assert any(row[: len(whole)] == whole for row in network.rows)


def test_the_hash_is_of_the_ids():
    assert prompt_hash([1, 256]) == sha256_bytes(b"\x01\x00\x00\x01")
