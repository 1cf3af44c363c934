"""Byte-level BPE: learning, the files of a tokenizer folder, and the encoder over them.

Learning is a pure function of the texts as a multiset. The library counts words in a
hash map, but with a fixed byte alphabet every entry has its id before the first merge,
count ties are broken by those ids, and no id depends on the order of words; only trainers
with a continuing-subword prefix take ids from the map's order (tokenizers#1794).
"""

import json
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from tokenizers import Tokenizer as Backend

from instella.canonical import json_bytes, parse_json, read_json, write_bytes, write_json
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Tokenizer

END_OF_TEXT = "<|endoftext|>"
PADDING = "<|padding|>"
LARGEST_ID = 65_535


def train_bpe(texts: Iterable[str], settings: Tokenizer) -> bytes:
    """Learn a byte-level BPE and return its ``tokenizer.json`` as canonical JSON.

    The form is that of the published tokenizer (recipe/FACTS B): NFC, GPT-2 split
    without a prefix space, ids 0 ``<|endoftext|>`` and 1 ``<|padding|>``, then the 256
    bytes, then merges. The vocabulary is smaller than ``settings.vocab_size`` when the
    text has no further pair that occurs twice.

    Args:
        texts: read once; their order and grouping into batches do not matter.
        settings: ``vocab_size`` and ``individual_digits`` are read.

    Raises:
        BadUse: no vocabulary size, one too large for uint16, or other special ids.
        VerificationError: there is no text.
    """
    vocab_size = _checked_size(settings)
    backend = Backend(models.BPE())
    backend.normalizer = normalizers.NFC()
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if settings.individual_digits:
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, split])
    else:
        backend.pre_tokenizer = split
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[
            AddedToken(text, special=True, normalized=False) for text in (END_OF_TEXT, PADDING)
        ],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    counter = _CountedTexts(texts)
    backend.train_from_iterator(counter, trainer)
    if counter.characters == 0:
        raise VerificationError("tokenizer: its parts hold no text; give it parts with documents")
    return json_bytes(json.loads(backend.to_str()))


class _CountedTexts:
    """Passes texts on and counts their characters."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts
        self.characters = 0

    def __iter__(self) -> Any:
        for text in self._texts:
            self.characters += len(text)
            yield text


def _checked_size(settings: Tokenizer) -> int:
    if settings.vocab_size is None:
        raise BadUse("tokenizer: vocab_size is missing; kind bpe needs it")
    if settings.vocab_size > LARGEST_ID + 1:
        raise BadUse(
            f"tokenizer: vocab_size {settings.vocab_size} does not fit uint16; "
            f"ask for at most {LARGEST_ID + 1}"
        )
    if (settings.eos_id, settings.pad_id) != (0, 1):
        raise BadUse(
            f"tokenizer: eos_id {settings.eos_id}, pad_id {settings.pad_id}; kind bpe has 0 and 1"
        )
    return settings.vocab_size


class Encoder:
    """Text to ids and back. Adds no token of its own: no BOS, no EOS, no padding.

    A special token written out in a text (``<|endoftext|>``) becomes its id, as in the
    published rows (recipe/FACTS I). Results are the same for any number of threads and
    any batch size.

    Attributes:
        vocab_size: largest id plus one, added tokens included.
        eos_id: end of text; also the begin of text.
        pad_id: padding.
    """

    def __init__(self, backend: Backend, eos: str, pad: str, where: str) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self.vocab_size = 1 + max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
        if self.vocab_size > LARGEST_ID + 1:
            raise VerificationError(
                f"{where}: largest id {self.vocab_size - 1} does not fit uint16; "
                f"use a tokenizer with ids up to {LARGEST_ID}"
            )
        self.eos_id = self._special(eos, where)
        self.pad_id = self._special(pad, where)

    def _special(self, token: str, where: str) -> int:
        for number, added in self._backend.get_added_tokens_decoder().items():
            if added.content == token and added.special:
                return int(number)
        raise VerificationError(
            f"{where}: {token!r} is not a special token; correct special_tokens_map.json"
        )

    def encode(self, text: str) -> list[int]:
        """Ids of one text.

        Raises:
            VerificationError: ``text`` holds half a surrogate pair and so is no Unicode.
        """
        utf8(text)
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text; equal to ``encode`` one by one, and faster."""
        for text in texts:
            utf8(text)
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids, special tokens written out; bytes that are no UTF-8 become U+FFFD."""
        return str(self._backend.decode([int(item) for item in ids], skip_special_tokens=False))


def utf8(text: str) -> bytes:
    """UTF-8 of ``text``.

    Raises:
        VerificationError: it holds a lone surrogate, which no encoding of Unicode has.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise VerificationError(
            f"text has a lone surrogate at character {error.start}; correct or drop the row"
        ) from None


def to_uint16(ids: Sequence[int]) -> np.ndarray:
    """Ids as uint16, one dimension.

    Raises:
        VerificationError: an id below 0 or above 65535, which would wrap round.
    """
    try:
        # Twice as fast as numpy's own way from a list of Python numbers.
        wide = np.frombuffer(array("I", ids), dtype=np.uint32)
    except OverflowError:
        wide = None
    if wide is None or wide.max(initial=0) > LARGEST_ID:
        raise VerificationError(
            f"token ids {min(ids)} to {max(ids)} do not fit uint16; "
            f"use a tokenizer with ids up to {LARGEST_ID}"
        )
    return wide.astype(np.uint16)


def load(folder: Path) -> Encoder:
    """The encoder of a folder with ``tokenizer.json`` and ``special_tokens_map.json``.

    Raises:
        VerificationError: a file is missing or malformed, drops merges at random, holds
            ids beyond uint16, or lacks the special tokens that it names.
    """
    for name in ("tokenizer.json", "special_tokens_map.json"):
        if not (folder / name).is_file():
            raise VerificationError(f"{folder}: no {name}; a tokenizer folder holds it")
    special = read_json(folder / "special_tokens_map.json")
    if not isinstance(special, dict) or not all(
        isinstance(special.get(name), str) for name in ("eos_token", "pad_token")
    ):
        raise VerificationError(
            f"{folder}/special_tokens_map.json: eos_token and pad_token must be texts"
        )
    where = str(folder / "tokenizer.json")
    backend = parse_backend((folder / "tokenizer.json").read_bytes(), where)
    return Encoder(backend, special["eos_token"], special["pad_token"], where)


def parse_backend(data: bytes, where: str) -> Backend:
    """The library's tokenizer from untrusted ``tokenizer.json`` bytes."""
    fields = parse_json(data, where)
    if not isinstance(fields, dict) or not isinstance(fields.get("model"), dict):
        raise VerificationError(f"{where}: no tokenizer; expected an object with a model")
    if fields["model"].get("dropout"):
        raise VerificationError(f"{where}: BPE dropout makes ids random; use a file without it")
    try:
        return Backend.from_str(data.decode("utf-8"))
    except Exception as error:  # the library raises a bare Exception
        reason = str(error).splitlines()[0]
        raise VerificationError(f"{where}: not a tokenizer of the library: {reason}") from None


def write_folder(
    folder: Path, tokenizer_json: bytes, eos_id: int, pad_id: int, chat_template: str
) -> None:
    """Write the three files from which transformers and ``load`` read a tokenizer.

    Args:
        folder: existing folder.
        tokenizer_json: bytes of ``tokenizer.json``, written as they are.
        eos_id: id of the end of text, also announced as the begin of text.
        pad_id: id of the padding.
        chat_template: Jinja text for ``apply_chat_template``.

    Raises:
        VerificationError: the bytes are no tokenizer, or an id has no entry.
    """
    backend = parse_backend(tokenizer_json, "tokenizer.json")
    names = {}
    for field, number in (("eos_token", eos_id), ("pad_token", pad_id)):
        token = backend.id_to_token(number)
        if token is None:
            raise VerificationError(f"tokenizer.json: no entry has id {number}; correct {field}")
        names[field] = token
    names["bos_token"] = names["eos_token"]
    write_bytes(folder / "tokenizer.json", tokenizer_json)
    write_json(folder / "special_tokens_map.json", names)
    config = {
        **names,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "chat_template": chat_template,
    }
    write_json(folder / "tokenizer_config.json", config)
