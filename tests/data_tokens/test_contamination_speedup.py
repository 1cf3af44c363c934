"""The fingerprints in front of the guard leave its answers as they are."""

import hashlib
import random
import re
import unicodedata

import numpy as np
import pytest

from instella.data.contamination import Guard
from instella.data.documents import Conversation, Message, Preference, Text
from instella.data.rolling import Fingerprints, fingerprints, plain

WORDS = [
    "the",
    "Spider",
    "has",
    "8",
    "legs",
    "Ωmega",
    "naïve",
    "ﬁne",
    "日本",
    "a_b",
    "x²",
    "I\u0307",
]
SEPARATORS = [" ", "\n", "_", ", ", "-", "\u00a0", "\u200b", "🙂", "…"]


def words_of(text: str) -> list[str]:
    """Words by their definition, one by one."""
    return re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).lower())


def grams(text: str, ngram: int) -> list[tuple[str, ...]]:
    words = words_of(text)
    return [tuple(words[i : i + ngram]) for i in range(len(words) - ngram + 1)]


def random_text(generator: random.Random, length: int) -> str:
    return "".join(generator.choice(WORDS) + generator.choice(SEPARATORS) for _ in range(length))


@pytest.mark.parametrize("ngram", [1, 2, 5])
def test_equal_fingerprints_are_equal_runs_of_words(ngram: int) -> None:
    generator = random.Random(ngram)
    seen: dict[int, tuple[str, ...]] = {}
    runs: dict[tuple[str, ...], int] = {}
    for _ in range(300):
        text = random_text(generator, generator.randrange(40))
        prints, letters = fingerprints(plain(text), ngram)
        expected = grams(text, ngram)
        assert len(prints) == len(expected)
        assert letters == sum(map(len, words_of(text)))
        for value, run in zip(prints.tolist(), expected, strict=True):
            assert seen.setdefault(value, run) == run
            assert runs.setdefault(run, value) == value


def test_blocks_of_words_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    text = plain(random_text(random.Random(0), 500))
    whole, _ = fingerprints(text, 13)
    monkeypatch.setattr("instella.data.rolling.BLOCK_WORDS", 7)
    assert fingerprints(text, 13)[0].tolist() == whole.tolist()


def test_every_letter_of_unicode_is_one() -> None:
    for code in [*range(0x800), *range(0x10400, 0x10480), 0x1D7D8, 0xD800, 0x10FFFF]:
        sign = chr(code)
        _, letters = fingerprints(sign, 1)
        assert letters == len(re.findall(r"[^\W_]", sign)), hex(code)


def test_the_set_of_fingerprints_holds_what_it_was_given() -> None:
    values = np.random.Generator(np.random.PCG64(0)).integers(2**64, size=5000, dtype=np.uint64)
    known = Fingerprints(values[:2500])
    assert all(known.holds_any(values[n : n + 1]) for n in range(2500))
    assert not known.holds_any(values[2500:])
    assert not Fingerprints(values[:0]).holds_any(values)


def brute(items: list[tuple[str, str, str]], text: str, ngram: int) -> str | None:
    """The answer for a text document by comparing words and texts themselves."""

    def unspaced(value: str) -> str:
        return "".join(unicodedata.normalize("NFKC", value).lower().split())

    for name, question, answer in items:
        if not grams(f"{question} {answer}", ngram) and unspaced(question) == unspaced(text):
            return name
    for run in grams(text, ngram):
        for name, question, answer in items:
            if run in grams(f"{question} {answer}", ngram):
                return name
    return None


def test_the_guard_answers_as_its_definition_says() -> None:
    generator = random.Random(7)
    items = [(f"s/{n}", random_text(generator, generator.randrange(1, 12)), "") for n in range(60)]
    guard = Guard(items, 4)
    found = 0
    for number in range(250):
        text = random_text(generator, generator.randrange(1, 14))
        if number % 5 == 0:
            text = generator.choice(items)[1].upper().replace(" ", "  ")
        expected = brute(items, text, 4)
        assert guard.holds(Text("k", text)) == expected, text
        found += expected is not None
    assert 50 < found < 250


def test_longer_documents_of_each_kind_are_found() -> None:
    held = " ".join(hashlib.sha256(bytes([n])).hexdigest()[:6] for n in range(13))
    guard = Guard([("exam/1", held, ""), ("exam/2", "3 + 4 =", "7")], 13)
    noise = " ".join(f"word{n}" for n in range(20_000))
    text = f"{noise}, {held.upper()}! {noise}"
    assert guard.holds(Text("k", text)) == "exam/1"
    assert guard.holds(Text("k", text.replace(held.upper()[:6], "other"))) is None
    halves = held[:40], held[40:]
    messages = Message("user", halves[0]), Message("assistant", halves[1])
    assert guard.holds(Conversation("k", messages)) is None
    asked = Message("user", "3+4="), Message("assistant", "eight")
    assert guard.holds(Conversation("k", asked)) == "exam/2"
    assert guard.holds(Preference("k", "Say:", "no", held)) == "exam/1"
    assert Guard([], 13).holds(Text("k", text)) is None
