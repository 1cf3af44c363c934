"""Does a folder's tokenizer turn every text into the ids of the recipe's tokenizer?"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from instella.canonical import read_json
from instella.data.tokenizer import parse_backend
from instella.errors import VerificationError
from instella.importing.folder import (
    CHAT_TEMPLATE,
    SPECIAL_TOKENS,
    TOKENIZER,
    TOKENIZER_CONFIG,
)
from instella.recipe.nodes import shown
from instella.recipe.settings import Tokenizer

EQUAL, DIFFERS, ABSENT = "equal", "differs", "absent"
_MODEL_PARTS = ("type", "merges", "byte_fallback", "ignore_merges")


def check_tokenizer(folder: Path, ours: Path, settings: Tokenizer) -> str:
    """Compare entries, ids, merges, splitting and special tokens; the chat template's state.

    The state is ``equal``, ``differs`` (in its text; what it renders is not compared) or
    ``absent``. A different template is no fault: the recipe's is used.

    Args:
        folder: the published folder.
        ours: folder of the recipe's tokenizer.
        settings: ids of end of text and padding.

    Raises:
        VerificationError: the first difference.
    """
    where = str(folder / TOKENIZER)
    left = parse_backend((folder / TOKENIZER).read_bytes(), where)
    right = parse_backend((ours / TOKENIZER).read_bytes(), str(ours / TOKENIZER))
    vocabulary = left.get_vocab(with_added_tokens=True)
    _compare_vocabularies(vocabulary, right.get_vocab(with_added_tokens=True), where)
    # Written by one version of the library, so that only meaning can differ.
    _compare_parts(json.loads(left.to_str()), json.loads(right.to_str()), where)
    config = _object(folder / TOKENIZER_CONFIG)
    for name, names in ((SPECIAL_TOKENS, _object(folder / SPECIAL_TOKENS)),
                        (TOKENIZER_CONFIG, config)):  # fmt: skip
        _check_special(names, vocabulary, settings, str(folder / name))
    template = _template(folder, config)
    if template is None:
        return ABSENT
    return EQUAL if template == _object(ours / TOKENIZER_CONFIG)["chat_template"] else DIFFERS


def _compare_vocabularies(theirs: Mapping[str, int], ours: Mapping[str, int], where: str) -> None:
    different = {token for token, _ in theirs.items() ^ ours.items()}
    if different:
        token = min(different, key=lambda item: (ours.get(item, theirs.get(item)), item))
        here, there = (names.get(token, "missing") for names in (theirs, ours))
        raise VerificationError(
            f"{where}: {len(different)} tokens differ from the recipe's tokenizer, as "
            f"{shown(token)}: id here {here}, there {there}"
        )


def _compare_parts(theirs: Mapping[str, Any], ours: Mapping[str, Any], where: str) -> None:
    def parts(fields: Mapping[str, Any]) -> dict[str, Any]:
        model = {f"model.{name}": fields["model"].get(name) for name in _MODEL_PARTS}
        steps = {name: _meaning(fields[name]) for name in ("normalizer", "pre_tokenizer")}
        added = sorted(fields["added_tokens"], key=lambda token: int(token["id"]))
        return {**model, **steps, "added_tokens": added}

    left, right = parts(theirs), parts(ours)
    for name, value in left.items():
        if value != right[name]:
            raise VerificationError(
                f"{where}: {name} differs from that of the recipe's tokenizer, so texts would "
                "get other ids"
            )


def _meaning(step: Any) -> Any:
    """A step without what changes offsets only."""
    if isinstance(step, dict):
        return {key: _meaning(value) for key, value in step.items() if key != "trim_offsets"}
    return [_meaning(item) for item in step] if isinstance(step, list) else step


def _check_special(
    names: Mapping[str, Any], vocabulary: Mapping[str, int], settings: Tokenizer, where: str
) -> None:
    eos, pad = settings.eos_id, settings.pad_id
    for key, wanted in (("bos_token", eos), ("eos_token", eos), ("pad_token", pad)):
        value = names.get(key)
        token = value.get("content") if isinstance(value, dict) else value
        if token is None:
            continue
        number = vocabulary.get(token) if isinstance(token, str) else None
        if number != wanted:
            raise VerificationError(
                f"{where}: {key} is {shown(str(token))} with id {number}, the recipe's tokenizer "
                f"has {wanted}"
            )


def _template(folder: Path, config: Mapping[str, Any]) -> Any:
    path = folder / CHAT_TEMPLATE
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace")
    return config.get("chat_template")


def _object(path: Path) -> dict[str, Any]:
    """A JSON object of a file; an empty one where there is no file."""
    if not path.is_file():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise VerificationError(f"{path}: not a JSON object")
    return value
