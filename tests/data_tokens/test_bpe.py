"""Learning a vocabulary: the same multiset of texts gives the same bytes."""

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from instella.canonical import json_bytes, parse_json, sha256_bytes
from instella.data.tokenizer import train_bpe
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Tokenizer

TIES = "aaabbbccccdddd"  # tokenizers#1794, minbpe#90: all counts tie


def settings(size: int = 300, digits: bool = True) -> Tokenizer:
    return Tokenizer(kind="bpe", vocab_size=size, individual_digits=digits)


def shuffled_copies(copies: int) -> list[str]:
    numbers = random.Random(6198)
    return [TIES, *("".join(numbers.sample(TIES, len(TIES))) for _ in range(copies))]


def test_ties_are_broken_the_same_way_in_100_runs_and_row_orders() -> None:
    rows = shuffled_copies(20) * 2
    expected = train_bpe(rows, settings())
    assert len(json.loads(expected)["model"]["merges"]) == 300 - 258
    numbers = random.Random(1)
    for _ in range(100):
        numbers.shuffle(rows)
        assert train_bpe(rows, settings()) == expected


def test_every_order_of_the_rows_gives_the_same_bytes() -> None:
    rows = ["dddd cccc bbb aaa", "abab baba", "ab ba ab", "aaaa aaa aa"]
    results = {train_bpe(order, settings()) for order in itertools.permutations(rows)}
    assert len(results) == 1


def test_ties_go_to_the_smaller_pair_of_ids() -> None:
    data = train_bpe(["dd cc", "dd cc", "bb aa"], settings(260))
    assert json.loads(data)["model"]["merges"] == [["c", "c"], ["d", "d"]]


def test_random_texts_do_not_depend_on_the_order_of_rows() -> None:
    numbers = random.Random(7)
    for alphabet in ("a", "ab", "abcd", "aé日"):
        rows = ["".join(numbers.choices(alphabet, k=numbers.randint(2, 12))) for _ in range(40)]
        expected = train_bpe(rows, settings())
        for _ in range(10):
            numbers.shuffle(rows)
            assert train_bpe(rows, settings()) == expected


@pytest.mark.parametrize(
    "environment",
    [
        {"TOKENIZERS_PARALLELISM": "0"},
        {"TOKENIZERS_PARALLELISM": "1", "RAYON_NUM_THREADS": "1"},
        {"TOKENIZERS_PARALLELISM": "1", "RAYON_NUM_THREADS": "2", "PYTHONHASHSEED": "1"},
    ],
)
def test_threads_and_hash_seed_do_not_matter(environment: dict[str, str]) -> None:
    rows = shuffled_copies(60) * 2
    code = (
        "import sys, json\n"
        "from instella.canonical import sha256_bytes\n"
        "from instella.data.tokenizer import train_bpe\n"
        "from instella.recipe.settings import Tokenizer\n"
        "rows = json.load(sys.stdin)\n"
        "print(sha256_bytes(train_bpe(rows, Tokenizer(kind='bpe', vocab_size=320))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(rows[::-1]),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.stdout.strip() == sha256_bytes(train_bpe(rows, settings(320)))


def test_form_is_the_published_one() -> None:
    data = train_bpe(["one two one two"], settings(digits=False))
    fields = parse_json(data, "tokenizer.json")
    assert data == json_bytes(fields)
    assert fields["normalizer"] == {"type": "NFC"}
    assert fields["pre_tokenizer"]["type"] == "ByteLevel"
    assert fields["pre_tokenizer"]["add_prefix_space"] is False
    assert [(item["id"], item["content"], item["special"]) for item in fields["added_tokens"]] == [
        (0, "<|endoftext|>", True),
        (1, "<|padding|>", True),
    ]
    vocabulary = fields["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
    assert sum(len(token) == 1 for token in vocabulary) == 256


def test_digits_stand_alone_when_asked() -> None:
    rows = ["2024 2024 2024 20"] * 9

    def digits(data: bytes) -> set[str]:
        return {
            token for token in json.loads(data)["model"]["vocab"] if token.strip("Ġ").isdecimal()
        }

    assert digits(train_bpe(rows, settings())) == set("0123456789")
    assert "2024" in digits(train_bpe(rows, settings(digits=False)))


@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_no_text_is_an_error(texts: list[str]) -> None:
    with pytest.raises(VerificationError, match="hold no text"):
        train_bpe(texts, settings())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Tokenizer(kind="bpe"), "vocab_size is missing"),
        (Tokenizer(kind="bpe", vocab_size=65_537), "does not fit uint16"),
        (Tokenizer(kind="bpe", vocab_size=300, eos_id=1, pad_id=0), "kind bpe has 0 and 1"),
    ],
)
def test_wrong_settings_are_refused(wrong: Tokenizer, message: str) -> None:
    with pytest.raises(BadUse, match=message):
        train_bpe(["text"], wrong)
