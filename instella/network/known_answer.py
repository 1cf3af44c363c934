"""Does this machine compute the bits that portable-x86 promises?

The promised answer of a product is computed here by definition: a chain of fused
multiply-adds, inner index ascending, cut every ``CHUNK``. The inputs are multiples of
2**-12 below 1, so a product is a multiple of 2**-24 and every exact sum fits in float64;
rounding it to float32 is then what a fused multiply-add does, on any processor. The sums
pass 24 bits after a few terms, so another order of terms gives other bits.
Attention has no such short definition: the answer of its two makes is a stored digest.
"""

import numpy as np
import torch
from torch import Tensor

from instella.canonical import sha256_bytes
from instella.errors import VerificationError
from instella.network.attention import attend
from instella.network.network import Instella
from instella.network.product import CHUNK, chain_product
from instella.numerics import PORTABLE
from instella.recipe.settings import Model

Shape = tuple[int, int, int]

_ADVICE = "choose numerics native-cpu, or report this processor"


def check_network(network: Instella, rows: int) -> None:
    """``check_machine`` for the shapes of a network, if its numerics class is portable-x86."""
    if network.numerics == PORTABLE:
        check_machine(network.settings, rows)


def check_machine(settings: Model, rows: int) -> None:
    """Compare all products that training a network needs, and attention, with what they
    should be; well below a second for small networks.

    Args:
        settings: shape of the network.
        rows: tokens of a micro-batch.

    Raises:
        VerificationError: other bits.
    """
    for shape in sorted(product_shapes(settings, rows)):
        check_product(shape)
    check_attention()


def product_shapes(settings: Model, rows: int) -> set[Shape]:
    """(M, N, K) of the forward and both backward products of every linear layer."""
    hidden, wide, vocabulary = (
        settings.hidden_size,
        settings.intermediate_size,
        settings.vocab_size,
    )
    shapes = set()
    for inner, outer in ((hidden, hidden), (hidden, wide), (wide, hidden), (hidden, vocabulary)):
        narrow, broad = sorted((inner, outer))
        shapes |= {(rows, outer, inner), (rows, inner, outer), (narrow, broad, rows)}
    return shapes


def check_product(shape: Shape) -> None:
    """Compare one product [M, K] x [N, K], in four of its rows, with its definition.

    Raises:
        VerificationError: other bits, with the first element that differs.
    """
    rows, columns, depth = shape
    left, right = _numbers(rows, depth, 1), _numbers(columns, depth, 2)
    chosen = sorted({0, rows // 3, rows // 2, rows - 1})
    wanted = _by_definition(left[chosen], right)
    for operand in (torch.from_numpy(right), torch.from_numpy(right.T.copy()).t()):
        got = chain_product(torch.from_numpy(left), operand).numpy()[chosen]
        wrong = np.argwhere(got != wanted)
        if wrong.size:
            row, column = wrong[0]
            raise VerificationError(
                f"portable-x86: product {rows} x {columns} x {depth}, element "
                f"({chosen[row]}, {column}) is {got[row, column]!r}, not "
                f"{wanted[row, column]!r}: {_ADVICE}"
            )


def _by_definition(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    total = np.zeros((left.shape[0], right.shape[0]), dtype=np.float32)
    for start in range(0, left.shape[1], CHUNK):
        chain = np.zeros_like(total)
        for k in range(start, min(start + CHUNK, left.shape[1])):
            exact = np.multiply.outer(left[:, k].astype(np.float64), right[:, k])
            chain = (chain + exact).astype(np.float32)
        total = total + chain
    return total


def _numbers(rows: int, columns: int, key: int) -> np.ndarray:
    """float32 [rows, columns], multiples of 2**-12 in -1 <= x < 1."""
    random = np.random.Generator(np.random.Philox(key=key))
    integers = random.integers(-(2**12), 2**12, size=(rows, columns))
    return (integers * 2.0**-12).astype(np.float32)


_ATTENTION = "d2262e9f1813221193ebfda8229dff1e147cd26ea46f1b8e5734b3623b9bcfea"


def check_attention() -> None:
    """Compare attention of both makes, forward and backward, with its stored digest.

    Raises:
        VerificationError: other bits; most often the environment of the numerics class
            was not set before Python started.
    """
    if attention_digest() != _ATTENTION:
        raise VerificationError(
            "portable-x86: attention gives other bits: set MKL_CBWR=COMPATIBLE and "
            f"ATEN_CPU_CAPABILITY=avx2 before Python starts; if they are set, {_ADVICE}"
        )


def attention_digest() -> str:
    """SHA-256 over attention and its gradients at fixed inputs, of products and fused."""
    parts: list[Tensor] = []
    for length, width in ((7, 16), (128, 32)):
        query, key, value, gradient = (
            torch.from_numpy(_numbers(2 * 2 * length, width, 3 + i)).view(2, 2, length, width)
            for i in range(4)
        )
        operands = [x.requires_grad_() for x in (query, key, value)]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        with torch.enable_grad():
            for mask in (None, causal.expand(2, 1, -1, -1)):
                out = attend(query, key, value, mask, PORTABLE)
                parts += [out.detach(), *torch.autograd.grad(out, operands, gradient)]
    return sha256_bytes(b"".join(part.contiguous().numpy().tobytes() for part in parts))
