"""Reads the tensors of a checkpoint folder that nobody vouches for.

One file ``model.safetensors``, or several named by ``model.safetensors.index.json``. The
safetensors library checks offsets and sizes; here it is checked that the files hold the
tensors the network has, each once, with its shape, and all in one dtype.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from instella.canonical import read_json
from instella.errors import VerificationError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}

# The library's own limit for a header; a larger one is refused before it is read.
_MAX_HEADER_BYTES = 100_000_000
# What Linux file systems take.
_MAX_NAME_BYTES = 255


def read_state(folder: Path, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """All tensors of the folder, by name.

    Args:
        folder: holds either ``model.safetensors`` or an index with its shards.
        shapes: names and shapes the folder must hold, no more and no fewer.

    Raises:
        VerificationError: a file is missing, broken or outside the folder; a tensor is
            missing, doubled, unknown, or has another shape or dtype than the rest.
    """
    state: dict[str, Tensor] = {}
    for path, names in _files(folder, set(shapes)).items():
        state.update(_read_file(path, names, shapes))
    dtypes = {str(tensor.dtype) for tensor in state.values()}
    if len(dtypes) != 1:
        raise VerificationError(f"{folder}: tensors of {' and '.join(sorted(dtypes))} are mixed")
    return state


def _files(folder: Path, wanted: set[str]) -> dict[Path, set[str]]:
    """File to the names of the tensors it must hold."""
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file() and index.is_file():
        raise VerificationError(f"{folder}: holds {SINGLE} and {INDEX}; remove one of them")
    if not index.is_file():
        return {single: wanted}
    content = read_json(index)
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict):
        raise VerificationError(f"{index}: no object weight_map")
    _refuse_difference(str(index), set(places), wanted)
    files: dict[Path, set[str]] = {}
    for name, file in sorted(places.items()):
        if not isinstance(file, str) or not _is_name(file):
            raise VerificationError(f"{index}: {name}: {file!r} is not a file of this folder")
        files.setdefault(folder / file, set()).add(name)
    return files


def _is_name(text: str) -> bool:
    """A name that a file of a folder can have."""
    plain = Path(text).name == text and text not in ("", "..") and text.isprintable()
    return plain and len(text.encode()) <= _MAX_NAME_BYTES


def _refuse_difference(where: str, found: set[str], wanted: set[str]) -> None:
    if missing := wanted - found:
        raise VerificationError(f"{where}: {len(missing)} tensors missing, as {min(missing)}")
    if extra := found - wanted:
        raise VerificationError(
            f"{where}: {len(extra)} tensors that do not belong there, as {min(extra)}"
        )


def _read_file(path: Path, names: set[str], shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    _check_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            _refuse_difference(str(path), set(file.keys()), names)
            for name in sorted(names):
                _check_tensor(f"{path}: {name}", file.get_slice(name), shapes[name])
            # Copied: the library's memory is not aligned, and alignment can steer kernels.
            return {name: file.get_tensor(name).clone() for name in sorted(names)}
    except SafetensorError as error:
        raise VerificationError(f"{path}: not a safetensors file: {error}") from None


def _check_header(path: Path) -> None:
    if not path.is_file():
        raise VerificationError(f"{path}: no such file")
    with path.open("rb") as file:
        start = file.read(8)
    size = struct.unpack("<Q", start)[0] if len(start) == 8 else None
    if size is None or size > min(_MAX_HEADER_BYTES, path.stat().st_size - 8):
        raise VerificationError(f"{path}: not a safetensors file: bad length of the header")


def _check_tensor(where: str, tensor: object, shape: torch.Size) -> None:
    found = list(tensor.get_shape())  # type: ignore[attr-defined]
    dtype = tensor.get_dtype()  # type: ignore[attr-defined]
    if found != list(shape):
        raise VerificationError(f"{where}: shape {found}, not {list(shape)}")
    if dtype not in DTYPES:
        raise VerificationError(f"{where}: dtype {dtype}, not one of {', '.join(DTYPES)}")
