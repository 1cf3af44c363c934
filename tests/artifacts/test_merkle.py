"""Merkle trees: against a plain recursive definition."""

from pathlib import Path

import pytest
from blake3 import blake3

from instella.merkle import file_root, leaf_hash, tree_root

SIZES = range(41)


def leaves_of(size: int) -> list[bytes]:
    return [f"leaf {number}\n".encode() for number in range(size)]


def defined_root(leaves: list[bytes]) -> bytes:
    """RFC 6962, 2.1, word for word, with BLAKE3."""
    if not leaves:
        return blake3(b"").digest()
    if len(leaves) == 1:
        return blake3(b"\x00" + leaves[0]).digest()
    half = max(power for power in (2**n for n in range(8)) if power < len(leaves))
    return blake3(b"\x01" + defined_root(leaves[:half]) + defined_root(leaves[half:])).digest()


@pytest.mark.parametrize("size", SIZES)
def test_the_root_is_the_defined_one(size: int) -> None:
    assert tree_root(iter(leaves_of(size))) == defined_root(leaves_of(size))


def test_roots_are_fixed() -> None:
    """They stand in manifests."""
    assert tree_root([]).hex() == blake3(b"").hexdigest()
    assert (
        leaf_hash(b"").hex() == "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"
    )
    root = "6c62dd52a0971b7d00a7cead004e0c3f3c0766e3f5359a0f8297768d2b02d03c"
    assert tree_root([b"a", b"b", b"c"]).hex() == root


def test_a_node_is_no_leaf() -> None:
    leaves = leaves_of(4)
    left, right = tree_root(leaves[:2]), tree_root(leaves[2:])
    assert tree_root([left, right]) != tree_root(leaves)


def test_the_leaves_of_a_file_are_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger.jsonl"
    path.write_bytes(b"{}\r\n\n[1]")
    assert file_root(path) == tree_root([b"{}\r\n", b"\n", b"[1]"]).hex()
    path.write_bytes(b"")
    assert file_root(path) == tree_root([]).hex()
