"""Matrix products of each numerics class, and the linear layer made of them.

``stock`` is ``torch.nn.functional.linear``: fast, its bits depend on the processor and on
the number of threads. ``portable`` goes through oneDNN's inner product, which computes
every output as one chain of fused multiply-adds with the inner index ascending, on AVX2
and on AVX-512 alike, as long as the inner dimension is at most ``CHUNK`` and both outer
dimensions are at least 2. Longer inner dimensions are cut here, at fixed places, and the
chunks added in order; single rows are doubled. So an output depends on its own row of the
left operand and its own row of the right one and on nothing else: not on the processor,
the threads or the other rows of the batch. ``known_answer.py`` checks that at run time.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from instella.errors import BadUse
from instella.numerics import CLASSES, PORTABLE

CHUNK = 512

Product = Callable[[Tensor, Tensor], Tensor]

# the overload itself: to look it up takes a seventh of a small call
_one_dnn_linear = torch.ops.mkldnn._linear_pointwise.default


def stock(left: Tensor, right: Tensor) -> Tensor:
    """``left [..., K] x right [N, K] -> [..., N]`` by the library of the machine."""
    return nn.functional.linear(left, right)


def portable(left: Tensor, right: Tensor) -> Tensor:
    """As ``stock``, with the same bits on every x86-64 processor with AVX2 and FMA.

    Args:
        left: float32 [..., K].
        right: float32 [N, K].

    Raises:
        BadUse: another dtype; the promise holds for float32 only.
    """
    (out,) = _PortableProducts.apply(left, right)
    return out


def product_of(numerics: str) -> Product:
    """The product of a numerics class; BadUse for an unknown class."""
    if numerics not in CLASSES:
        raise BadUse(f"numerics class {numerics!r}: choose one of {', '.join(CLASSES)}")
    return portable if numerics == PORTABLE else stock


class Linear(nn.Linear):
    """Linear layer without bias whose product is that of a numerics class.

    Args:
        in_features: width of the input.
        out_features: width of the output.
        numerics: numerics class.
    """

    def __init__(self, in_features: int, out_features: int, numerics: str) -> None:
        super().__init__(in_features, out_features, bias=False)
        self.product = product_of(numerics)

    def forward(self, input: Tensor) -> Tensor:
        """``input [..., in] -> [..., out]``."""
        return self.product(input, self.weight)


def project(input: Tensor, *layers: Linear) -> tuple[Tensor, ...]:
    """What each of several linear layers of one numerics class makes of the same input.

    With gradients the portable products become one, over the weights one below the other:
    a call costs more than a small product does. It changes no bit of an output, which
    depends on its own row of the weights alone.
    """
    if layers[0].product is not portable or not torch.is_grad_enabled():
        return tuple(layer(input) for layer in layers)
    out: tuple[Tensor, ...] = _PortableProducts.apply(input, *[layer.weight for layer in layers])
    return out


class _PortableProducts(torch.autograd.Function):
    """Products of [..., K] with several [N, K], whose gradients are portable products too.

    What is not needed for a gradient is not kept: a frozen weight costs no memory of
    activations.
    """

    @staticmethod
    def forward(ctx: Any, left: Tensor, *rights: Tensor) -> tuple[Tensor, ...]:
        right = rights[0] if len(rights) == 1 else torch.cat(rights)
        need_left, *need_rights = ctx.needs_input_grad
        ctx.sizes = [item.shape[0] for item in rights]
        ctx.save_for_backward(left if any(need_rights) else None, right if need_left else None)
        out = chain_product(_rows(left), right).view(*left.shape[:-1], right.shape[0])
        return (out,) if len(rights) == 1 else out.split(ctx.sizes, dim=-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        rows = [_rows(gradient) for gradient in gradients]
        gradient = rows[0].contiguous() if len(rows) == 1 else torch.cat(rows, dim=1)
        to_left = None
        if right is not None:
            to_left = chain_product(gradient, right.t())
            to_left = to_left.view(*gradients[0].shape[:-1], right.shape[1])
        if left is None:
            return (to_left, *[None] * len(rows))
        return (to_left, *_gradient_of_right(gradient, _rows(left)).split(ctx.sizes))


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _gradient_of_right(gradient: Tensor, left: Tensor) -> Tensor:
    """``gradient [M, N]``, ``left [M, K]`` -> [N, K].

    A left operand has to be copied when it is a transposed view, a right one does not, so
    the narrower one goes to the left; a product does not depend on which factor is which.
    """
    if gradient.shape[1] <= left.shape[1]:
        return chain_product(gradient.t(), left.t())
    return chain_product(left.t(), gradient.t()).t().contiguous()


def chain_product(left: Tensor, right: Tensor) -> Tensor:
    """The portable product itself, without gradients.

    Args:
        left: float32 [M, K], any strides.
        right: float32 [N, K], any strides; a transposed view of a contiguous tensor is
            as good as a contiguous one.

    Returns:
        [M, N], contiguous.
    """
    if left.dtype is not torch.float32 or right.dtype is not torch.float32:
        raise BadUse(
            f"numerics class {PORTABLE} is defined for float32, not for {left.dtype} and "
            f"{right.dtype}; choose native-cpu"
        )
    rows, columns = left.shape[0], right.shape[0]
    if rows == 1:
        return chain_product(left.expand(2, -1), right)[:1]
    if columns == 1:
        return chain_product(left, right.expand(2, -1))[:, :1].contiguous()
    depth = left.shape[1]
    if depth <= CHUNK:
        return chain(left, right)
    total = chain(left[:, :CHUNK], right[:, :CHUNK])
    for start in range(CHUNK, depth, CHUNK):
        total += chain(left[:, start : start + CHUNK], right[:, start : start + CHUNK])
    return total


def chain(left: Tensor, right: Tensor) -> Tensor:
    """``chain_product`` for M, N >= 2 and 1 <= K <= ``CHUNK``, which it does not check."""
    if right.stride() != (1, right.shape[0]):
        right = right.contiguous()
    return _one_dnn_linear(left.contiguous(), right, None, "none", [], "")
