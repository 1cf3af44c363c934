"""Networks that know nothing, or everything, score on every kind of set exactly what they must.

What they must is worked out here from the items and the tokenizer, not by the measures.
"""

import math

import numpy as np
import pytest
import torch
from evaluation_helpers import ITEMS, ROWS, Constant, Writer, choice

from instella.data.chat import answer_ids, prompt_ids
from instella.evaluation.measures import MEASURES

EOS = 0
CHOICES = [
    choice("first", ["a", "bc", "def"], 0),
    choice("middle", ["abc", "d", "ef"], 1),
    choice("last", ["ab", "cde", "f"], 2),
    choice("tie", ["ab", "cd", "e"], 0),
]
SETS = ITEMS | {"choice": CHOICES}


class Hashed:
    """Logits that are random, but the same for the same id at the same place."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.table = torch.randn(64, ROWS, ROWS, generator=generator)

    def __call__(self, ids):
        return self.table[torch.arange(ids.shape[1]), ids]

    def logprob(self, ids, start):
        """Sum of the log-probabilities of ids from ``start`` on, in plain float64."""
        total = 0.0
        for place in range(start, len(ids)):
            row = self.table[place - 1, ids[place - 1]].double().numpy()
            total += row[ids[place]] - np.log(np.exp(row).sum())
        return total


class Gold:
    """Puts nearly everything on the next id of the given sequences."""

    def __init__(self, sequences) -> None:
        self.next = {tuple(ids[:n]): ids[n] for ids in sequences for n in range(1, len(ids))}

    def __call__(self, ids):
        logits = torch.zeros(*ids.shape, ROWS)
        for row, own in enumerate(ids.tolist()):
            for place in range(len(own)):
                wanted = self.next.get(tuple(own[: place + 1]))
                if wanted is not None:
                    logits[row, place, wanted] = 100.0
        return logits


def sequences_of(bench, kind, item):
    """Every row of ids that a measure of the kind has to score: name -> (ids, first scored)."""
    encode = bench.encoder.encode
    if kind == "text":
        return {"text": ([EOS, *encode(item["text"]), EOS], 1)}
    if kind == "choice":
        context = [EOS, *encode(f"Question: {item['question']}\nAnswer:")]
        return {number: (context + encode(" " + text), len(context))
                for number, text in enumerate(item["choices"])}  # fmt: skip
    context = prompt_ids(item["question"], bench.encoder)
    sides = ("chosen", "rejected") if kind == "preference" else ("answer",)
    return {side: (context + answer_ids(item[side], bench.encoder), len(context))
            for side in sides}  # fmt: skip


def measured(bench, kind, network, items=None):
    subject = bench.subject(network, kind, max_new_tokens=16)
    records = MEASURES[kind](subject, SETS[kind] if items is None else items)
    return {record["key"]: record["figures"] for record in records}


@pytest.mark.parametrize("kind", ["text", "answer", "preference", "choice"])
def test_a_constant_network(bench, kind):
    found = measured(bench, kind, Constant())
    nat = math.log(ROWS)
    for item in SETS[kind]:
        sizes = {name: len(ids) - start
                 for name, (ids, start) in sequences_of(bench, kind, item).items()}  # fmt: skip
        figures = found[item["key"]]
        if kind in ("text", "answer"):
            (size,) = sizes.values()
            assert figures == {"loss": [pytest.approx(size * nat, rel=1e-6), size]}
        elif kind == "preference":
            assert figures == {"accuracy": [0.0, 1.0], "margin": [0.0, 1.0]}
        else:
            gold, others = sizes.pop(item["gold"]), sizes.values()
            # A sum is best for the shortest; all else is a tie or nearly so, and ties are wrong.
            assert figures["acc_raw"] == [float(gold < min(others)), 1.0]
            assert figures["acc_per_token"] == figures["acc_uncond"] == [0.0, 1.0]
            letters = [len(text) for text in item["choices"]]
            share = [-(n + 1) / n for n in letters]
            best = all(share[item["gold"]] > s for i, s in enumerate(share) if i != item["gold"])
            assert figures["acc_per_character"] == [float(best), 1.0]


@pytest.mark.parametrize("kind", ["text", "answer", "preference", "choice"])
def test_a_random_network(bench, kind):
    network = Hashed()
    found = measured(bench, kind, network)
    for item in SETS[kind]:
        own = sequences_of(bench, kind, item)
        sums = {name: network.logprob(*row) for name, row in own.items()}
        figures = found[item["key"]]
        if kind in ("text", "answer"):
            ((name, (ids, start)),) = own.items()
            assert figures["loss"] == [pytest.approx(-sums[name], rel=1e-5), len(ids) - start]
        elif kind == "preference":
            means = {name: sums[name] / (len(ids) - start) for name, (ids, start) in own.items()}
            margin = means["chosen"] - means["rejected"]
            assert figures["margin"] == [pytest.approx(margin, abs=1e-4), 1.0]
            assert figures["accuracy"] == [float(margin > 0), 1.0]
        else:
            best = max(sums, key=sums.__getitem__)
            assert figures["acc_raw"] == [float(best == item["gold"]), 1.0]


@pytest.mark.parametrize("kind", ["text", "answer", "preference", "choice"])
def test_a_network_that_knows_the_gold(bench, kind):
    for item in SETS[kind]:
        own = sequences_of(bench, kind, item)
        name = {"preference": "chosen", "choice": item.get("gold")}.get(kind, kind)
        # Alone, since other items go on differently from the same beginning.
        (figures,) = measured(bench, kind, Gold([own[name][0]]), [item]).values()
        if kind in ("text", "answer"):
            assert figures["loss"][0] == pytest.approx(0.0, abs=1e-6)
        elif kind == "preference":
            assert figures["accuracy"] == [1.0, 1.0] and figures["margin"][0] > 1.0
        else:
            assert set(map(tuple, figures.values())) == {(1.0, 1.0)}


@pytest.mark.parametrize(("text", "score"), [("", 0.0), ("\\boxed{7}", 0.0), ("\\boxed{12}", 1.0)])
def test_problems(bench, text, score):
    """An empty answer, one that has nothing to do with the question, and gold."""
    writer = Writer([*bench.encoder.encode(text), EOS])
    items = [{"key": f"m{n}", "question": f"{n}+{12 - n}", "answer": "12"} for n in range(5)]
    records = MEASURES["problem"](bench.subject(writer, "problem", max_new_tokens=16), items)
    assert [record["figures"]["pass@1"] for record in records] == [[score, 1.0]] * 5
