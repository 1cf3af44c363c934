"""Every operation of a piece of training, with digests of what it read and what it made."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from instella.canonical import json_bytes, parse_json

# What these return is memory as it was left: whatever its bits, nobody reads them.
_UNWRITTEN = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"}
# These write their first argument without reading it.
_OVERWRITING = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_"}


class Tracer(TorchDispatchMode):
    """Writes one line an operation while it is active.

    A line holds ``op``, and for tensors read and made ``[dtype, shape, digest]``; ``numbers``
    are all other arguments, a float with every bit. What an operation made counts its
    arguments too, which it may have written.

    Args:
        path: file for the lines.
        dump: number of the operation, from 0, of which the tensors made are written beside
            the file as ``made-N.npy``.
    """

    def __init__(self, path: Path, dump: int | None = None) -> None:
        super().__init__()
        self._path = path
        self._dump = dump
        self._count = 0
        self._file: Any = None

    def __enter__(self) -> "Tracer":
        self._file = self._path.open("wb")
        super().__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        super().__exit__(*reason)
        self._file.close()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Record one operation and do it."""
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        first = 1 if name in _OVERWRITING else 0
        named = {key: value for key, value in kwargs.items() if key != "out"}
        leaves = tree_leaves([args[first:], named])
        read = [_state(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
        numbers = [_plain(leaf) for leaf in leaves if not isinstance(leaf, Tensor)]
        if torch.Tag.nondeterministic_seeded in func.tags:
            read.append(_generator(leaves))
        result = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves([result, args, kwargs]) if isinstance(leaf, Tensor)]
        states = [] if name in _UNWRITTEN else [_state(leaf) for leaf in made]
        line = {"op": str(func), "read": read, "numbers": numbers, "made": states}
        self._file.write(json_bytes(line))
        if self._count == self._dump:
            for number, leaf in enumerate(made):
                np.save(self._path.with_name(f"made-{number}.npy"), _bits(leaf))
        self._count += 1
        return result


def _state(tensor: Tensor) -> list[Any]:
    digest = blake3(_bits(tensor).tobytes()).hexdigest()
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), digest]


def _generator(leaves: list[Any]) -> list[Any]:
    """A random operation reads the state of its generator too."""
    given = [leaf for leaf in leaves if isinstance(leaf, torch.Generator)]
    state = (given or [torch.default_generator])[0].get_state()
    return ["generator", [], blake3(state.numpy().tobytes()).hexdigest()]


def _bits(tensor: Tensor) -> np.ndarray:
    """The tensor's bytes in C order, as unsigned integers of its elements' size."""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    size = flat.element_size()
    octets = flat.view(torch.uint8).numpy()
    return octets.view(f"<u{size}") if size in (1, 2, 4, 8) else octets


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return value.hex()
    known = str | int | bool | None | torch.dtype | torch.device | torch.layout
    return str(value) if isinstance(value, known) else type(value).__name__


def read_trace(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a trace, in order."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            yield parse_json(line, f"{path}, line {number}")
