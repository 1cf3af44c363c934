"""Reads files of artifacts and saves each again: ``save_again.py FILES.json FOLDER [--reversed]``.

FILES.json lists paths; the copies get the numbers of their places as names. With
``--reversed`` everything that has no order of its own (files, keys of objects, names of
tensors) comes in reversed order, and arrays have another layout in memory.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

from instella.canonical import (
    read_json,
    read_jsonl,
    write_bytes,
    write_json,
    write_jsonl,
    write_npy,
    write_safetensors,
)


def turned(value: Any) -> Any:
    """A JSON value whose objects have their keys in reversed order."""
    if isinstance(value, dict):
        return {key: turned(item) for key, item in reversed(value.items())}
    return [turned(item) for item in value] if isinstance(value, list) else value


def save(path: Path, target: Path, reverse: bool) -> None:
    """Save one file again; SystemExit for a kind that is not known."""
    order = turned if reverse else lambda value: value
    if path.suffix == ".json":
        write_json(target, order(read_json(path)))
    elif path.suffix == ".jsonl":
        write_jsonl(target, map(order, read_jsonl(path)))
    elif path.suffix == ".npy":
        array = np.load(path, allow_pickle=False)
        if reverse:
            array = np.asfortranarray(array.astype(array.dtype.newbyteorder(">")))
        write_npy(target, array)
    elif path.suffix == ".safetensors":
        tensors = load_file(path)
        if reverse:
            tensors = {
                name: tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor
                for name, tensor in reversed(tensors.items())
            }
        write_safetensors(target, tensors)
    elif path.name == "table.md":
        text = path.read_text(encoding="utf-8")
        write_bytes(target, "".join(f"{line}\n" for line in text.split("\n")[:-1]).encode("utf-8"))
    else:
        raise SystemExit(f"{path}: a kind of file that this test does not know")


def main() -> None:
    """Save all files of the list."""
    files = list(enumerate(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
    reverse = "--reversed" in sys.argv
    for index, path in reversed(files) if reverse else files:
        save(Path(path), Path(sys.argv[2], str(index)), reverse)


if __name__ == "__main__":
    main()
