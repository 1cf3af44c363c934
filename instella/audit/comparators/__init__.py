"""One small comparator for each format of an artifact's files.

A comparator reads two untrusted files of the same name and says where they first differ,
with both values, and how much differs in all. Memory stays flat but for JSON documents.
"""

from collections.abc import Callable
from pathlib import Path

from instella.audit.comparators import arrays, documents, plain, rows, tables, tensors, vocabulary
from instella.audit.comparators.finding import Comparison
from instella.errors import VerificationError

Comparator = Callable[[Path, Path], Comparison]

_BY_NAME: dict[str, Comparator] = {"tokenizer.json": vocabulary.compare}
_BY_SUFFIX: dict[str, Comparator] = {
    ".safetensors": tensors.compare,
    ".npy": arrays.compare,
    ".jsonl": rows.compare,
    ".json": documents.compare,
    ".parquet": tables.compare,
}


def compare_files(name: str, left: Path, right: Path) -> Comparison:
    """How two files differ.

    Args:
        name: path in the artifact; its ending decides the format.
        left, right: the files.

    Returns:
        For a file that is not what its name says, the reason, and how the bytes differ.
    """
    base = name.rpartition("/")[2]
    chosen = _BY_NAME.get(base) or _BY_SUFFIX.get(Path(base).suffix, plain.compare)
    try:
        return chosen(left, right)
    except VerificationError as error:
        found = plain.compare(left, right)
        return Comparison(f"{error}; {found.summary}", found.findings)
