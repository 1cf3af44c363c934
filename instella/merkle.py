"""Merkle trees over a sequence of leaves, shaped as in RFC 6962, with BLAKE3 as the hash.

A leaf is hashed behind the byte 0, a node behind the byte 1, so neither can be taken for
the other. A tree of n leaves has the largest power of two below n in its left half, so a
root says how many leaves there are as long as the verifier is told the same number.
"""

from collections.abc import Iterable
from pathlib import Path

from blake3 import blake3

DIGEST_BYTES = 32
_LEAF, _NODE = b"\x00", b"\x01"


def leaf_hash(leaf: bytes) -> bytes:
    """Hash of one leaf, 32 bytes."""
    return blake3(_LEAF + leaf).digest()


def _node_hash(left: bytes, right: bytes) -> bytes:
    return blake3(_NODE + left + right).digest()


def tree_root(leaves: Iterable[bytes]) -> bytes:
    """Root over the leaves in their order, 32 bytes; of no leaves the hash of nothing.

    Memory holds one hash a level, so a file's lines may be given as they are read.
    """
    stack: list[tuple[int, bytes]] = []
    for leaf in leaves:
        size, node = 1, leaf_hash(leaf)
        while stack and stack[-1][0] == size:
            node = _node_hash(stack.pop()[1], node)
            size *= 2
        stack.append((size, node))
    if not stack:
        return blake3(b"").digest()
    node = stack.pop()[1]
    while stack:
        node = _node_hash(stack.pop()[1], node)
    return node


def file_root(path: Path) -> str:
    """Root over the lines of a file, each with its line feed, as 64 hex digits."""
    with path.open("rb") as file:
        return tree_root(file).hex()
