"""A checkpoint of verl as a Hugging Face folder, compared with what training started from.

verl keeps a shard for each rank, which are pickles: only checkpoints of one's own runs belong
here, and only verl's environment opens them. Its merger writes bfloat16 whatever the shards
hold; a float32 model is therefore taken from the copy that verl saved beside them, after each
of its tensors, rounded, was found equal to the merged one.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from instella.canonical import read_json
from instella.engines.verl.ask import PYTHON, ask
from instella.errors import VerificationError
from instella.network.config import settings_of
from instella.network.folder import save_folder
from instella.network.network import Instella
from instella.network.shards import INDEX, SINGLE, read_state

ACTOR, COPY, FSDP = "actor", "huggingface", "fsdp_config.json"
SHARDS = ("model", "optim", "extra_state")
# Tensors are copied as they are; no product is computed.
NUMERICS = "native-cpu"
MAX_RANKS = 65536


@dataclass(frozen=True)
class Shape:
    """Shape and dtype of a tensor, as safetensors names it."""

    shape: tuple[int, ...]
    dtype: str


def require_checkpoint(folder: Path) -> int:
    """The number of ranks of a complete checkpoint.

    verl's rotation removes the shards of an old checkpoint and leaves its folder behind, so
    that a folder alone says nothing.

    Args:
        folder: ``global_step_N``.

    Raises:
        VerificationError: a file is missing.
    """
    path = folder / ACTOR / FSDP
    if not path.is_file():
        raise VerificationError(f"{path}: no such file; {folder.name} is no checkpoint of verl")
    found = read_json(path)
    ranks = found.get("world_size") if isinstance(found, dict) else None
    if type(ranks) is not int or not 1 <= ranks <= MAX_RANKS:
        raise VerificationError(f"{path}: world_size is {ranks!r}")
    wanted = [folder / ACTOR / COPY / "config.json", folder / "data.pt"]
    for rank in range(ranks):
        wanted += [folder / ACTOR / f"{name}_world_size_{ranks}_rank_{rank}.pt" for name in SHARDS]
    for file in wanted:
        if not file.is_file():
            raise VerificationError(
                f"{file}: no such file; the checkpoint was rotated away or not written to its end"
            )
    return ranks


def shapes_of(folder: Path) -> dict[str, Shape]:
    """Name to shape and dtype of every tensor of a folder; only headers are read.

    Raises:
        VerificationError: no weights, or a file that is none.
    """
    found: dict[str, Shape] = {}
    with _opened(folder) as files:
        for name, file in files.items():
            part = file.get_slice(name)
            found[name] = Shape(tuple(part.get_shape()), part.get_dtype())
    return found


@contextmanager
def _opened(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Tensor's name to the open file that holds it."""
    with ExitStack() as stack:
        found = {}
        for name in _names(folder):
            path = folder / name
            if Path(name).name != name or not path.is_file():
                raise VerificationError(f"{path}: no file of weights in this folder")
            try:
                file = stack.enter_context(safe_open(path, framework="pt"))
            except SafetensorError as error:
                raise VerificationError(f"{path}: not a safetensors file: {error}") from None
            found.update(dict.fromkeys(file.keys(), file))
        yield found


def _names(folder: Path) -> list[str]:
    """Files of weights, as the index names them."""
    if not (folder / INDEX).is_file():
        return [SINGLE]
    index = read_json(folder / INDEX)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(isinstance(item, str) for item in places.values()):
        raise VerificationError(f"{folder / INDEX}: no object weight_map with names of files")
    return sorted(set(places.values()))


def differences(start: Mapping[str, Shape], made: Mapping[str, Shape]) -> list[str]:
    """One line for each tensor whose name, shape or dtype is not that of the start."""
    lines = [f"{name}: missing" for name in sorted(start.keys() - made.keys())]
    lines += [f"{name}: not in the starting model" for name in sorted(made.keys() - start.keys())]
    for name in sorted(start.keys() & made.keys()):
        for what in ("shape", "dtype"):
            before, now = getattr(start[name], what), getattr(made[name], what)
            if before != now:
                lines.append(f"{name}: {what} {now}, of the starting model {before}")
    return lines


def export(checkpoint: Path, start: Path, output: Path, python: Path = PYTHON) -> int:
    """Make a checkpoint folder of verl's shards; returns the number of tensors.

    Args:
        checkpoint: ``global_step_N`` of a run of the caller's own.
        start: folder of the checkpoint that the run started from.
        output: existing empty folder; gets configuration, weights and tokenizer.
        python: of an environment with verl.

    Raises:
        VerificationError: the checkpoint is not complete, or a tensor differs from the
            starting model in name, shape or dtype, or the two copies differ.
    """
    require_checkpoint(checkpoint)
    expected = shapes_of(start)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".merge-") as place:
        merged = Path(place, "merged")
        ask("merge", {"actor": str(checkpoint / ACTOR), "target": str(merged)}, python)
        chosen = merged
        if any(tensor.dtype != "BF16" for tensor in expected.values()):
            chosen = checkpoint / ACTOR / COPY
            _compare_rounded(chosen, merged)
        faults = differences(expected, shapes_of(chosen))
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            raise VerificationError(f"{checkpoint}: {faults[0]}{more}")
        network = _network(chosen)
        save_folder(output, network, start, network.settings.max_position_embeddings)
    return len(expected)


def _network(folder: Path) -> Instella:
    """As ``load_folder``, without asking for the dtype: verl's copy calls itself bfloat16."""
    settings = settings_of(read_json(folder / "config.json"), str(folder / "config.json"))
    with torch.device("meta"):
        network = Instella(settings, NUMERICS)
    shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
    network.load_state_dict(read_state(folder, shapes), assign=True)
    return network


def _compare_rounded(exact: Path, rounded: Path) -> None:
    """Each tensor of one folder, rounded to bfloat16, against the other's; bit by bit."""
    with _opened(exact) as left, _opened(rounded) as right:
        if left.keys() != right.keys():
            raise VerificationError(f"{exact}: other tensors than verl's shards hold")
        for name in sorted(left):
            ours, theirs = left[name].get_tensor(name), right[name].get_tensor(name)
            if not torch.equal(ours.to(torch.bfloat16), theirs):
                raise VerificationError(f"{exact}: {name}: not what verl's shards hold")
