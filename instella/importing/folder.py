"""Copies of what is read of a published folder that nobody vouches for.

Only named files are touched: configuration, tokenizer, safetensors. Code and pickles are
neither read nor copied. A link may lead within the folder, or to where the hub's cache
keeps the bytes of its snapshots.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from instella.artifacts.manifest import Entry
from instella.canonical import read_json, sha256_file
from instella.errors import BadUse, VerificationError
from instella.network.shards import INDEX, SINGLE

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
TOKENIZER_CONFIG, SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
CHAT_TEMPLATE = "chat_template.jinja"
NEEDED = (CONFIG, TOKENIZER)
USEFUL = (TOKENIZER_CONFIG, SPECIAL_TOKENS, CHAT_TEMPLATE)
WEIGHTS_END = ".safetensors"

MAX_TEXT_BYTES = 64 << 20
# The safetensors library's own limit for the header of a file.
MAX_HEADER_BYTES = 100_000_000
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def copy_folder(folder: Path, target: Path, max_tensor_bytes: int) -> dict[str, Entry]:
    """Copy the files that an import reads; name to hash and size of each copy.

    Args:
        folder: the published folder.
        target: existing empty folder.
        max_tensor_bytes: all tensors together may not take more.

    Raises:
        BadUse: ``folder`` is no folder.
        VerificationError: a file is missing, too large, no plain file, or leads outside.
    """
    if not folder.is_dir():
        raise BadUse(f"{folder}: no such folder; name the folder of a checkpoint")
    present = {entry.name for entry in os.scandir(folder)}
    for name in NEEDED:
        if name not in present:
            raise VerificationError(f"{folder}: no {name}; a published checkpoint has one")
    copies = {
        name: _copy(folder, name, target, MAX_TEXT_BYTES)
        for name in (*NEEDED, *USEFUL, INDEX)
        if name in present
    }
    if INDEX in copies:
        shards = _shards(target / INDEX, present)
        if SINGLE in present:
            raise VerificationError(f"{folder}: holds {SINGLE} and {INDEX}; remove one of them")
    elif SINGLE in present:
        shards = [SINGLE]
    else:
        raise VerificationError(_without_weights(folder, present))
    room = max_tensor_bytes + len(shards) * MAX_HEADER_BYTES
    for name in shards:
        copies[name] = _copy(folder, name, target, room)
        room -= copies[name].size
    return copies


def _shards(index: Path, present: Iterable[str]) -> list[str]:
    """Names of the index's files; each one stands in the folder itself."""
    content = read_json(index)
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not places:
        raise VerificationError(f"{index}: no object weight_map")
    for tensor, name in places.items():
        if not isinstance(name, str) or name not in present or not name.endswith(WEIGHTS_END):
            what = f"{name!r:.80} is not a {WEIGHTS_END} file of the folder"
            raise VerificationError(f"{index}: {tensor!r:.80}: {what}")
    return sorted(set(places.values()))


def _without_weights(folder: Path, present: Iterable[str]) -> str:
    pickled = sorted(name for name in present if name.endswith(_PICKLED))
    if pickled:
        return (
            f"{folder}: its weights are pickled ({pickled[0]!r:.80}), and to load those can run "
            "code; convert them to safetensors first"
        )
    return f"{folder}: neither {SINGLE} nor {INDEX}; there are no weights to import"


def _copy(folder: Path, name: str, target: Path, limit: int) -> Entry:
    path = folder / name
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(home) for home in _homes(folder)):
        raise VerificationError(f"{path}: a link out of the folder; put the file itself there")
    if not real.is_file():
        raise VerificationError(f"{path}: not a plain file")
    if real.stat().st_size > limit:
        size = real.stat().st_size
        raise VerificationError(
            f"{path}: {size:,} bytes, more than the {limit:,} that the recipe's model could need"
        )
    shutil.copyfile(real, target / name)
    return Entry(sha256_file(target / name), (target / name).stat().st_size)


def _homes(folder: Path) -> list[Path]:
    home = Path(os.path.realpath(folder))
    # ``models--owner--name/snapshots/<commit>`` holds links to ``models--owner--name/blobs``.
    is_snapshot = home.parent.name == "snapshots"
    return [home, home.parent.parent / "blobs"] if is_snapshot else [home]
