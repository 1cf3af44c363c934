"""Writers with one possible output: the same values give the same bytes anywhere.

Every file of an artifact is written here. JSON has sorted keys, no insignificant
blanks, UTF-8 and one final LF; arrays are ``.npy`` version 1.0 in C order; tensors are
safetensors with sorted names and the one metadata key that transformers asks for (several
keys come out of the library in random order, safetensors#66). Text is LF only. A value
that JSON cannot hold exactly is refused.
"""

import hashlib
import json
import math
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from instella.errors import VerificationError


def json_bytes(value: Any) -> bytes:
    """Canonical JSON of ``value``; ValueError for NaN, infinities and unknown types."""
    _refuse_unknown(value, "$")
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8") + b"\n"


def _refuse_unknown(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{where}: key {key!r} is not text")
            _refuse_unknown(item, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_unknown(item, f"{where}[{index}]")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where}: {value} has no JSON form")
    elif value is not None and not isinstance(value, (str, int, bool)):
        raise ValueError(f"{where}: {type(value).__name__} has no canonical form")


def read_json(path: Path) -> Any:
    """Strict JSON of an untrusted file: duplicate keys, NaN and infinities are refused.

    Raises:
        VerificationError: the file is not such JSON, with the place.
    """
    data = path.read_bytes()
    return parse_json(data, str(path))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; VerificationError names a bad line."""
    rows = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            row = parse_json(line, f"{path}, line {number}")
            if not isinstance(row, dict):
                raise VerificationError(f"{path}, line {number}: not an object")
            rows.append(row)
    return rows


def parse_json(data: bytes, where: str) -> Any:
    """As ``read_json``, for bytes; ``where`` names them in the error."""
    try:
        return _STRICT.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise VerificationError(f"{where}: not canonical JSON: {error}") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return result


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of ``data`` as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes as 64 hex digits; memory stays flat."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` and flush it to the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as canonical JSON."""
    write_bytes(path, json_bytes(value))


def write_jsonl(path: Path, rows: Iterable[Any]) -> int:
    """Write one canonical JSON value a line; returns the number of rows."""
    count = 0
    with path.open("wb") as file:
        for row in rows:
            file.write(json_bytes(row))
            count += 1
    return count


def write_npy(path: Path, array: Any) -> None:
    """Write a numpy array as little-endian, C-ordered ``.npy`` without pickle."""
    import numpy as np

    array = np.ascontiguousarray(array)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    with path.open("wb") as file:
        np.lib.format.write_array(file, little, version=(1, 0), allow_pickle=False)


def write_npy_blocks(
    path: Path, dtype: str, shape: tuple[int, ...], blocks: Iterable[bytes]
) -> None:
    """As ``write_npy``, for values that come as bytes, block by block; memory stays flat.

    Args:
        path: the file to write.
        dtype: of the values, little-endian.
        shape: of the array.
        blocks: its bytes in C order.

    Raises:
        VerificationError: the blocks are not as long as the array.
    """
    import numpy as np

    kind = np.dtype(dtype).newbyteorder("<")
    header = {"descr": kind.str, "fortran_order": False, "shape": shape}
    left = kind.itemsize * math.prod(shape)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            left -= len(block)
            file.write(block)
    if left:
        raise VerificationError(f"{path}: its values are {left} bytes short of shape {shape}")


# One decoder for all rows: making one for each costs more than most rows do.
_STRICT = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_float=_finite
)

_SAFETENSORS_NAMES = {
    "torch.float64": "F64",
    "torch.float32": "F32",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.int64": "I64",
    "torch.int32": "I32",
    "torch.uint8": "U8",
    "torch.bool": "BOOL",
}


def write_safetensors(path: Path, tensors: Mapping[str, Any]) -> None:
    """Write torch tensors, one after another in the order of their sorted names.

    The header is ours (sorted keys, padded with blanks to 8 bytes as the format asks),
    because the library sorts by dtype alignment and its metadata order is random.

    Args:
        path: the file to write.
        tensors: name to torch tensor (any of the dtypes above), on any device.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _SAFETENSORS_NAMES[str(tensor.dtype)],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for name in sorted(tensors):
            _write_tensor(file, tensors[name])
        file.flush()
        os.fsync(file.fileno())


def _write_tensor(file: Any, tensor: Any) -> None:
    import torch

    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    if flat.numel():
        file.write(memoryview(flat.view(torch.uint8).numpy()))
