"""What the network is shown for a held-out item before anything is scored, and its hash.

Records of the stages hold an item's key. This derives the prompt again from the item and the
tokenizer, so that a record, the held-out artifact and the checkpoint's tokenizer tell it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from instella.canonical import sha256_bytes
from instella.data.chat import prompt_ids, with_suffix
from instella.data.tokenizer import Encoder


def prompt_of(kind: str, item: Mapping[str, Any], encoder: Encoder, suffix: str) -> list[int]:
    """Ids before the first that is scored or sampled.

    Args:
        kind: of the held-out set.
        item: of the held-out artifact.
        encoder: the checkpoint's tokenizer.
        suffix: what the recipe adds to a problem.
    """
    if kind == "text":
        return [encoder.eos_id]
    if kind == "choice":
        return [encoder.eos_id, *encoder.encode(f"Question: {item['question']}\nAnswer:")]
    question = item["question"]
    return prompt_ids(with_suffix(question, suffix) if kind == "problem" else question, encoder)


def prompt_hash(ids: list[int]) -> str:
    """SHA-256 of the ids as little-endian uint16, as the tokens stages keep them."""
    return sha256_bytes(np.array(ids, dtype="<u2").tobytes())
