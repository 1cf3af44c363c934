"""The step ledger: one line a step with digests of what it read, drew and made.

Two runs that should be equal are compared line by line: the first line that differs names
the step, and its field names the cause. ``cursor`` is which examples the step took, ``rng``
the random generators, ``rollout`` and ``rewards`` what a policy sampled and earned, ``loss``
what the batch gave before the update, ``rate`` the learning rates, and ``tensors``, on some
lines, each parameter and moment by name, with the Merkle root over them.

Digests are BLAKE3 in its key derivation mode, whose context names the field, so one
field's digest never stands for another's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from torch import Tensor

from instella import canonical
from instella.merkle import tree_root
from instella.training.generators import generator_states

_CONTEXT = "instella.ledger/1 "

Streams = Sequence[Sequence[str | int]]
DigestTogether = Callable[[Mapping[str, Tensor]], dict[str, Any]]


class Ledger:
    """Lines of the steps done, in rank 0; the other ranks keep none.

    Args:
        every: tensors are digested on each such step, and on the first and the last.
        total: steps of the whole run.
        kept: false in ranks that only share the work.
        digest: digests tensors of which every rank holds a part, and is called in every rank;
            None where rank 0 holds them whole.

    Attributes:
        lines: canonical JSON, each with its line feed.
    """

    def __init__(
        self, every: int, total: int, kept: bool, digest: DigestTogether | None = None
    ) -> None:
        self.lines: list[bytes] = []
        self._digest = digest
        self._every = every
        self._total = total
        self._kept = kept

    def add(
        self,
        step: int,
        fields: Callable[[], Mapping[str, str]],
        tensors: Callable[[], Mapping[str, Tensor]],
    ) -> None:
        """Add the line of ``step``, counted from 1.

        Args:
            step: just done.
            fields: gives digests by name.
            tensors: gives parameters and moments by name; called when they are due.
        """
        due = step in (1, self._total) or step % self._every == 0
        digest = self._digest or (tensor_digests if self._kept else None)
        digests = digest(tensors()) if due and digest is not None else None
        if not self._kept:
            return
        line: dict[str, Any] = {"step": step, **fields()}
        if digests is not None:
            line["tensors"] = digests
        self.lines.append(canonical.json_bytes(line))


def cursor_digest(epoch: int, examples: np.ndarray) -> str:
    """Digest of the epoch and of the numbers, [global batch], of its examples."""
    return _digest("cursor", {"epoch": epoch}, [examples.astype("<u8").tobytes()])


def rng_digest(streams: Streams) -> str:
    """Digest of the global generators' states and of the keys of the streams in use."""
    states = generator_states()
    head = {"streams": list(streams), "sizes": [len(state) for state in states]}
    return _digest("rng", head, states)


def numbers_digest(purpose: str, values: Any) -> str:
    """Digest of numbers in lists and objects; a float counts with every bit."""
    return _digest(purpose, _exact(values), [])


def tensors_digest(purpose: str, tensors: Sequence[Tensor]) -> str:
    """Digest of several tensors in their order, and of their number."""
    return _digest(purpose, [tensor_digest(tensor) for tensor in tensors], [])


def tensor_digest(tensor: Tensor) -> str:
    """Digest of dtype, shape and contiguous little-endian bytes."""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    head = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
    return _digest("tensor", head, [flat.view(torch.uint8).numpy().data])


def tensor_digests(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """``names``: digest of each tensor; ``root``: Merkle root over ``[name, digest]``.

    A leaf is the canonical JSON of the pair; names are in sorted order.
    """
    return with_root({name: tensor_digest(tensors[name]) for name in tensors})


def with_root(names: Mapping[str, str]) -> dict[str, Any]:
    """What ``tensor_digests`` gives, from the digest of each tensor."""
    root = tree_root(canonical.json_bytes([name, names[name]]) for name in sorted(names))
    return {"names": {name: names[name] for name in sorted(names)}, "root": root.hex()}


def _digest(purpose: str, head: Any, parts: Sequence[bytes | memoryview]) -> str:
    # the head ends with its line feed and says how long the parts are, or there is one part
    hasher = blake3(canonical.json_bytes(head), derive_key_context=_CONTEXT + purpose)
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def _exact(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, Mapping):
        return {name: _exact(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(item) for item in value]
    return value
