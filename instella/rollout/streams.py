"""Random numbers of a sample: a function of what it is for, and of nothing drawn before."""

import hashlib
from collections.abc import Sequence

import numpy as np

from instella.canonical import json_bytes


def uniforms(parts: Sequence[str | int], count: int) -> np.ndarray:
    """The first ``count`` numbers of the stream that ``parts`` name, float64 in [0, 1).

    Philox keyed by BLAKE2b-128 of the parts as a canonical JSON list. A longer ``count``
    continues the same numbers.

    Args:
        parts: purpose, seed, step, key of the prompt, number of the sample and the like;
            their order and their types count.
    """
    philox = np.random.Philox(key=int.from_bytes(_digest(parts), "little"))
    return np.random.Generator(philox).random(count)


def seed_of(parts: Sequence[str | int]) -> int:
    """A seed of 63 bits for another engine's generator, named as the streams are."""
    return int.from_bytes(_digest(parts)[:8], "little") >> 1


def _digest(parts: Sequence[str | int]) -> bytes:
    return hashlib.blake2b(json_bytes(list(parts)), digest_size=16).digest()
