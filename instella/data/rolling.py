"""Fingerprints of all n-grams of words of a text, computed without touching single words.

Equal n-grams have equal fingerprints; the converse does not hold, so a match is only a
reason to look closer. Everything is arithmetic on uint64, modulo 2**64: the fingerprint of
a run is a polynomial in an odd base, taken as the difference of two running sums and
divided by the base's power at the start of the run.
"""

import unicodedata

import numpy as np

BASE = np.uint64(0x9E3779B97F4A7C15)
INVERSE = np.uint64(pow(int(BASE), -1, 1 << 64))
MIX = np.uint64(0xD6E8FEB86659FD93)
HALF = np.uint64(32)
BLOCK_WORDS = 1 << 14
"""Words handled at once, so that the arrays of a block stay in the processor's cache."""
LARGEST_CODE = 0x110000


def plain(text: str) -> str:
    """The text as words are compared: NFKC, lower case."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).lower()


class _WordSigns:
    """Which code points are letters or digits, as the pattern ``[^\\W_]`` has them."""

    UNKNOWN, OTHER, WORD = range(3)
    # Of bytes, the table of a translation, which is several times faster than an index.
    ASCII = bytes(chr(code).isalnum() for code in range(256))

    def __init__(self) -> None:
        self._table = np.zeros(LARGEST_CODE, dtype=np.uint8)

    def among(self, signs: np.ndarray) -> np.ndarray:
        """bool, of the shape of ``signs`` (as ``codes`` gives them)."""
        if signs.dtype == np.uint8:
            return np.frombuffer(signs.tobytes().translate(self.ASCII), dtype=np.bool_)
        found = self._table[signs]
        if not found.all():
            for code in np.unique(signs[found == self.UNKNOWN]).tolist():
                self._table[code] = self.WORD if chr(code).isalnum() else self.OTHER
            found = self._table[signs]
        return found == self.WORD


class _Powers:
    """Powers of the base, or of its inverse, as far as they were needed."""

    def __init__(self, base: np.uint64) -> None:
        self._base = base
        self._values = np.ones(1, dtype=np.uint64)

    def upto(self, count: int) -> np.ndarray:
        """uint64 [count]."""
        if len(self._values) < count:
            factors = np.full(2 * count, self._base, dtype=np.uint64)
            factors[0] = 1
            self._values = np.multiply.accumulate(factors)
        return self._values[:count]


_WORD_SIGNS = _WordSigns()
_POWERS, _INVERSES = _Powers(BASE), _Powers(INVERSE)


def codes(text: str) -> np.ndarray:
    """Code points of a text: uint8 [characters] if it is ASCII, else uint32."""
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def fingerprints(text: str, ngram: int) -> tuple[np.ndarray, int]:
    """Fingerprint of each n-gram of words, and the letters and digits of the text.

    Args:
        text: as ``plain`` gives it.
        ngram: words of an n-gram.

    Returns:
        uint64 [words - ngram + 1], empty for fewer words; and the count.
    """
    signs = codes(text)
    # Blanks on both sides, so that every word has a begin and an end.
    inside = np.zeros(len(signs) + 2, dtype=np.bool_)
    inside[1:-1] = _WORD_SIGNS.among(signs)
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    starts, ends = edges[::2], edges[1::2]
    letters = int((ends - starts).sum())
    if len(starts) < ngram:
        return np.zeros(0, dtype=np.uint64), letters
    blocks = [
        _words(signs, starts[first : first + BLOCK_WORDS], ends[first : first + BLOCK_WORDS])
        for first in range(0, len(starts), BLOCK_WORDS)
    ]
    return _runs(np.concatenate(blocks), ngram), letters


def _words(signs: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Fingerprint of each word, from the running sum over the characters it stands among."""
    first, last = int(starts[0]), int(ends[-1])
    sums = np.zeros(last - first + 1, dtype=np.uint64)
    np.cumsum(signs[first:last] * _POWERS.upto(last - first), out=sums[1:])
    begin = starts - first
    shares = sums[ends - first] - sums[begin]
    return _mixed(shares * _INVERSES.upto(last - first)[begin])


def _runs(words: np.ndarray, ngram: int) -> np.ndarray:
    """Fingerprint of each run of ``ngram`` words."""
    count = len(words) - ngram + 1
    sums = np.zeros(len(words) + 1, dtype=np.uint64)
    np.cumsum(words * _POWERS.upto(len(words)), out=sums[1:])
    return _mixed((sums[ngram:] - sums[:count]) * _INVERSES.upto(count))


def _mixed(values: np.ndarray) -> np.ndarray:
    """Spreads a difference in any bit over the high bits."""
    values = (values ^ (values >> HALF)) * MIX
    return values ^ (values >> HALF)


class Fingerprints:
    """A set of fingerprints that answers for many at once.

    A table of bits by the high bits of a fingerprint answers for nearly all of them.
    """

    def __init__(self, values: np.ndarray) -> None:
        self._values = np.unique(values)
        bits = min(26, max(10, (32 * len(self._values)).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(1 << bits, dtype=np.bool_)
        self._table[self._values >> self._shift] = True

    def holds_any(self, values: np.ndarray) -> bool:
        """Whether one of the values is in the set."""
        likely = values[self._table[values >> self._shift]]
        if not len(likely):
            return False
        places = np.searchsorted(self._values, likely)
        places[places == len(self._values)] = 0
        return bool((self._values[places] == likely).any())
