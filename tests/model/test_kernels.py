"""Attention within documents, and the words handed to flash-attention.

The kernel itself runs on GPUs only. A module of its name computes by the definition here, so
what is checked is layout, offsets and options.
"""

import sys
from types import ModuleType

import pytest
import torch
from torch import Tensor

from instella.errors import BadUse
from instella.network.attention import FLASH, SDPA, Documents, attend, require_kernel
from instella.network.init import initialize
from instella.network.network import Instella
from instella.recipe.settings import Model

EOS = 0
SHAPE = Model(
    hidden_size=160, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
    vocab_size=32, max_position_embeddings=64,
)  # fmt: skip
# Two windows: the first begins and the second ends within a document.
ROWS = [[5, 6, EOS, 7, 8, 9, EOS, 3], [4, EOS, EOS, 11, 12, 13, 14, 15]]
DOCUMENTS = [(0, 0, 3), (0, 3, 7), (0, 7, 8), (1, 0, 2), (1, 2, 3), (1, 3, 8)]


def by_definition(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention, [T, heads, d]."""
    scores = torch.einsum("qhd,khd->hqk", query, key) / query.shape[-1] ** 0.5
    future = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, value)


class FlashAttention(ModuleType):
    """What the kit may ask of flash-attention, as its README describes the two functions."""

    __spec__ = None

    def __init__(self) -> None:
        super().__init__("flash_attn")
        self.asked: list[str] = []

    def flash_attn_func(self, q: Tensor, k: Tensor, v: Tensor, **options: object) -> Tensor:
        assert options == {"causal": True, "deterministic": True}
        self.asked.append("whole")
        rows = [by_definition(*row) for row in zip(q, k, v, strict=True)]
        return torch.stack(rows)

    def flash_attn_varlen_func(
        self, q: Tensor, k: Tensor, v: Tensor, *, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
        max_seqlen_q: int, max_seqlen_k: int, causal: bool, deterministic: bool,
    ) -> Tensor:  # fmt: skip
        assert causal and deterministic and q.dim() == 3
        assert cu_seqlens_q.dtype == torch.int32 and torch.equal(cu_seqlens_q, cu_seqlens_k)
        sizes = cu_seqlens_q.diff().tolist()
        assert max(sizes) == max_seqlen_q == max_seqlen_k
        self.asked.append("documents")
        parts = zip(q.split(sizes), k.split(sizes), v.split(sizes), strict=True)
        return torch.cat([by_definition(*part) for part in parts])


@pytest.fixture
def flash(monkeypatch: pytest.MonkeyPatch) -> FlashAttention:
    module = FlashAttention()
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    monkeypatch.setattr("instella.network.attention.find_spec", lambda name: name)
    return module


@pytest.fixture
def network() -> Instella:
    network = Instella(SHAPE, "native-cpu")
    initialize(network, 1)
    return network


def test_a_packed_document_has_the_values_it_has_alone(network: Instella) -> None:
    """Though its positions go on where the one before ends."""
    ids = torch.tensor(ROWS)
    packed = network(ids, mask=Documents(ids, EOS))
    for row, start, end in DOCUMENTS:
        alone = network(ids[row : row + 1, start:end])
        torch.testing.assert_close(packed[row, start:end], alone[0], rtol=1e-5, atol=1e-5)
    plain = network(ids)
    torch.testing.assert_close(plain[0, :3], packed[0, :3], rtol=1e-5, atol=1e-5)
    assert (plain - packed)[0, 3:].abs().max() > 1e-3


def test_documents_as_each_kernel_knows_them() -> None:
    documents = Documents(torch.tensor(ROWS), EOS)
    assert documents.offsets.tolist() == [0, 3, 7, 8, 10, 11, 16]
    assert documents.longest == 5
    wanted = torch.zeros(2, 1, 8, 8, dtype=torch.bool)
    for row, start, end in DOCUMENTS:
        wanted[row, 0, start:end, start:end] = torch.ones(end - start, end - start).tril().bool()
    assert torch.equal(documents.mask, wanted)


@pytest.mark.parametrize("within", [False, True])
def test_flash_attention_computes_what_sdpa_does(
    network: Instella, flash: FlashAttention, within: bool
) -> None:
    """Logits and gradients; heads of 80."""
    ids = torch.tensor(ROWS)
    found = []
    for kernel in (SDPA, FLASH):
        network.attend_by(kernel)
        network.zero_grad()
        logits = network(ids, mask=Documents(ids, EOS) if within else None)
        logits.square().sum().backward()
        found.append([logits.detach(), *(item.grad.clone() for item in network.parameters())])
    assert flash.asked == ["documents" if within else "whole"] * 2
    for one, other in zip(*found, strict=True):
        assert (one - other).abs().max() < 1e-5 * one.abs().max()


def test_one_query_goes_to_the_cache_by_sdpa(flash: FlashAttention) -> None:
    query, key = torch.randn(1, 2, 1, 80), torch.randn(1, 2, 5, 80)
    attend(query, key, key, None, "native-cpu", FLASH)
    attend(key, key, key, torch.ones(1, 1, 5, 5, dtype=torch.bool), "native-cpu", FLASH)
    assert flash.asked == []


def test_a_kernel_that_is_not_there_is_never_replaced(network: Instella) -> None:
    with pytest.raises(BadUse, match="attention: flash_attention_2: flash_attn is not installed"):
        network.attend_by(FLASH)
    with pytest.raises(BadUse, match="takes heads up to 256 in steps of 8, not 12"):
        require_kernel(FLASH, 12)
