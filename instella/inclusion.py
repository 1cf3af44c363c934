"""Inclusion in the trees of ``instella.merkle``: audit paths of RFC 6962, section 2.1.1.

Beside the trees and not in them, since training stages import those: their code hash stays.
"""

from collections.abc import Sequence

from instella.errors import VerificationError
from instella.merkle import _node_hash, leaf_hash, tree_root


def audit_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Hashes that lead from one leaf to the root, the nearest first; at most log2(n), rounded up.

    Args:
        leaves: all leaves, in order.
        index: of the leaf, from 0.
    """
    if len(leaves) <= 1:
        return []
    half = 1 << (len(leaves) - 1).bit_length() - 1
    if index < half:
        return [*audit_path(leaves[:half], index), tree_root(leaves[half:])]
    return [*audit_path(leaves[half:], index - half), tree_root(leaves[:half])]


def root_with(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """Root of the tree in which ``leaf`` has this place and path (RFC 9162, 2.1.3.2), 32 bytes.

    Raises:
        VerificationError: no tree of ``size`` leaves has such a path.
    """
    if not 0 <= index < size:
        raise VerificationError(f"leaf {index} of {size}: there is no such leaf")
    node, place, last = leaf_hash(leaf), index, size - 1
    for sibling in path:
        if last == 0:
            raise VerificationError(f"leaf {index} of {size}: its path is too long")
        if place & 1 or place == last:
            node = _node_hash(sibling, node)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            node = _node_hash(node, sibling)
        place, last = place >> 1, last >> 1
    if last:
        raise VerificationError(f"leaf {index} of {size}: its path is too short")
    return node
