"""Drawing the documents of a mixture in order, and packing them on disk.

The documents of all parts, after selection, are permuted by numpy's PCG64 with the
data's seed. A stage meets them in that order, asks the guard about each as it comes, and
stops when it has enough: what lies behind the stop is neither checked nor encoded.

The selected documents of a stage lie in memory; ids go to disk as they come.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from instella.canonical import write_npy
from instella.data.adapters import read
from instella.data.documents import Choice, Conversation, Document, Preference, Problem, Text
from instella.data.ledger import Ledger, entry
from instella.data.select import select
from instella.data.tokenizer import Encoder, to_uint16
from instella.errors import BadUse, VerificationError
from instella.recipe.settings import Part

BLOCK_DOCUMENTS = 64
"""Documents encoded at once: enough for the library's threads, little behind the stop."""

MATH_PROMPT = "math_prompt"
"""Option of a part that the tokens stages read themselves: its questions are math
problems, so the prompt suffix goes after each user turn."""

Kind = TypeVar("Kind")


class HeldOut(Protocol):
    """What packing asks of ``instella.data.contamination.Guard``."""

    def holds(self, document: Document) -> str | None:
        """``SET/KEY`` of a held-out item that ``document`` holds, or None."""
        ...


@dataclass(frozen=True)
class Drawn:
    """A document with the part (its number and source) that it comes from."""

    part: int
    source: str
    document: Document
    math_prompt: bool

    def of_kind(self, kind: type[Kind]) -> Kind:
        """The document, which must be a ``kind``.

        Raises:
            BadUse: the part's adapter yields something else.
        """
        if not isinstance(self.document, kind):
            raise BadUse(
                f"source {self.source}: its adapter yields {type(self.document).__name__}, this "
                f"stage needs {kind.__name__}; choose another adapter for part {self.part}"
            )
        return self.document


def split_options(part: Part, math_prompt: bool = False) -> tuple[Part, bool]:
    """The part as its adapter may see it, and whether its questions get the suffix.

    Args:
        part: its option ``math_prompt`` is taken out.
        math_prompt: what holds when the option is absent.

    Raises:
        BadUse: the option is neither true nor false.
    """
    options = dict(part.options or {})
    if MATH_PROMPT not in options:
        return part, math_prompt
    chosen = options.pop(MATH_PROMPT)
    if not isinstance(chosen, bool):
        raise BadUse(f"source {part.source}: {MATH_PROMPT} is {chosen!r}; write true or false")
    return replace(part, options=options), chosen


def documents_of(part: Part, inputs: Mapping[str, Path]) -> Iterator[Document]:
    """Selected documents of one part, ``math_prompt`` already taken out of its options."""
    return select(read(part, inputs[f"source_{part.source}"]), part)


def draw(
    parts: Sequence[Part], inputs: Mapping[str, Path], seed: int, math_prompt: bool = False
) -> list[Drawn]:
    """The selected documents of all parts, permuted by PCG64(``seed``).

    Args:
        parts: the mixture; its order is part of the result.
        inputs: role ``source_NAME`` to the folder of that source.
        seed: of the permutation.
        math_prompt: default of the parts' option of that name.

    Raises:
        VerificationError: no part yields a document.
    """
    drawn = []
    for number, part in enumerate(parts):
        bare, math = split_options(part, math_prompt)
        drawn += [Drawn(number, part.source, item, math) for item in documents_of(bare, inputs)]
    if not drawn:
        names = ", ".join(part.source for part in parts) or "none"
        raise VerificationError(f"parts ({names}) hold no document; give the mixture some data")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(drawn))
    return [drawn[index] for index in order]


def admitted(drawn: Sequence[Drawn], guard: HeldOut, ledger: Ledger) -> Iterator[Drawn]:
    """The documents that hold no held-out item; the others are counted."""
    for item in drawn:
        held = guard.holds(item.document)
        if held is None:
            yield item
        else:
            ledger.contaminated(item.part, held)


def plain_text(document: Document) -> str:
    """A document as text to predict, without role tags.

    ``Text`` as it is; otherwise stripped contents joined by newlines (recipe/FACTS D): a
    conversation's turns, or the question with its answer, better answer or right choice.
    """
    match document:
        case Text(text=text):
            return text
        case Conversation(messages=messages):
            pieces = [message.content for message in messages]
        case Problem(question=question, answer=answer):
            pieces = [question, answer]
        case Preference(question=question, chosen=chosen):
            pieces = [question, chosen]
        case Choice(question=question, choices=choices, gold=gold):
            pieces = [question, choices[gold]]
    return "\n".join(piece.strip() for piece in pieces)


class Spool:
    """Values of one dtype that grow on disk and are read back as one array.

    Use as a context manager; the file is removed at the end.
    """

    def __init__(self, path: Path, dtype: Any) -> None:
        self._path = path
        self._dtype = np.dtype(dtype)
        self._file = path.open("wb", buffering=1 << 20)
        self.size = 0

    def append(self, values: np.ndarray) -> None:
        """Add the values of an array of the spool's dtype."""
        if values.dtype != self._dtype:
            raise VerificationError(f"{self._path}: {values.dtype} added to {self._dtype}")
        self._file.write(values.tobytes())
        self.size += values.size

    def array(self) -> np.ndarray:
        """All values so far, one dimension, mapped from the disk; at least one."""
        self._file.flush()
        return np.memmap(self._path, dtype=self._dtype, mode="r", shape=(self.size,))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self._path.unlink()


class RowSpool:
    """Rows of ids with their label masks, growing on disk."""

    def __init__(self, scratch: Path, prefix: str, length: int) -> None:
        self._prefix = prefix
        self._length = length
        self._ids = Spool(scratch / f"{prefix}input_ids.part", np.uint16)
        self._mask = Spool(scratch / f"{prefix}label_mask.part", np.bool_)

    def append(self, ids: np.ndarray, mask: np.ndarray) -> None:
        """Add one row: uint16 [length] and bool [length]."""
        self._ids.append(ids)
        self._mask.append(mask)

    def save(self, output: Path) -> None:
        """Write ``PREFIXinput_ids.npy`` and ``PREFIXlabel_mask.npy``, [rows, length]."""
        for name, spool in (("input_ids", self._ids), ("label_mask", self._mask)):
            rows = spool.array().reshape(-1, self._length)
            write_npy(output / f"{self._prefix}{name}.npy", rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._ids.__exit__(*error)
        self._mask.__exit__(*error)


def pack_text(
    drawn: Sequence[Drawn],
    guard: HeldOut,
    encoder: Encoder,
    ledger: Ledger,
    stream: Spool,
    max_tokens: int | None = None,
    block: int = BLOCK_DOCUMENTS,
) -> Iterator[dict[str, Any]]:
    """Append documents to ``stream``, each followed by the end of text.

    Stops after the document that reaches ``max_tokens``. Neither the stream nor the
    ledger depends on ``block``, the number of documents encoded at once.

    Yields:
        The ledger's entry of each document, ``end`` behind its end of text.
    """
    for first in range(0, len(drawn), block):
        batch = drawn[first : first + block]
        for item, text, held, ids in _encoded(batch, guard, encoder):
            if max_tokens is not None and stream.size >= max_tokens:
                return
            if held is not None:
                ledger.contaminated(item.part, held)
                continue
            if not text.strip():
                ledger.dropped(item.part, "empty")
                continue
            ledger.noted(item.part, "special_token_in_text", ids.count(encoder.eos_id))
            start = stream.size
            stream.append(to_uint16([*ids, encoder.eos_id]))
            ledger.kept(item.part, characters=len(text), tokens=stream.size - start)
            yield entry(item.source, item.document.key, text, start=start, end=stream.size)


def _encoded(
    batch: Sequence[Drawn], guard: HeldOut, encoder: Encoder
) -> Iterator[tuple[Drawn, str, str | None, list[int]]]:
    """Each document with its text, the held-out item it holds, and its ids."""
    held = [guard.holds(item.document) for item in batch]
    texts = [plain_text(item.document) for item in batch]
    ids = encoder.encode_batch(texts)
    return zip(batch, texts, held, ids, strict=True)
