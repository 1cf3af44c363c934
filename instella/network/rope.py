"""Rotary position embedding with the same bytes on every machine.

Sine and cosine of a mathematical library differ in their last bit from one processor to
the next. The table is therefore made of operations that IEEE 754 fixes: the frequencies
by decimal arithmetic in software, the angles by one float32 product, their sine and
cosine by argument reduction and a polynomial of separate float64 additions and products.
"""

import math
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

# pi/2 in three parts: the first two have 33 bits, so a multiple below 2**20 is exact
# (the split of fdlibm's e_rem_pio2.c).
_HALF_PI = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_MAX_ANGLE = float(2**20)
# Taylor terms of sin(r)/r and cos(r) in r*r; beyond |r| <= pi/4 the next is below 2**-60.
_SINE = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(9))
_COSINE = tuple((-1.0) ** n / math.factorial(2 * n) for n in range(10))


@lru_cache(maxsize=8)
def rope_table(length: int, width: int, theta: float, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding.

    The angle of position p and pair i is ``p * (1 / theta ** (2i / width))``, every step
    rounded to float32 as in the published network; both halves of the width hold the
    same angles (NeoX style).

    Args:
        length: number of positions, from 0.
        width: width of a head, even.
        theta: base.
        device: where the table lies.

    Returns:
        cosine and sine, float32 [length, width]; the first half of the sines is negative,
        as ``rotate`` uses them.
    """
    positions = np.arange(length, dtype=np.float32)
    angles = np.multiply.outer(positions, _frequencies(width, theta))
    cosine, sine = _cosine_and_sine(angles.astype(np.float64))
    return _table(cosine, cosine, device), _table(-sine, sine, device)


def _table(first: np.ndarray, second: np.ndarray, device: str) -> Tensor:
    both = np.concatenate([first, second], axis=1).astype(np.float32)
    # The table is kept: made within inference mode it could not serve training later.
    with torch.inference_mode(False):
        return torch.from_numpy(both).to(device)


def _frequencies(width: int, theta: float) -> np.ndarray:
    """``1 / theta ** (2i / width)``, float32 [width / 2], correctly rounded at each step."""
    with localcontext() as context:
        context.prec = 50
        powers = [
            float(Decimal(theta) ** Decimal(float(np.float32(2 * i) / np.float32(width))))
            for i in range(width // 2)
        ]
    return np.float32(1.0) / np.array(powers, dtype=np.float32)


def _cosine_and_sine(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of float64 angles in 0 <= x < 2**20, error below 2**-50."""
    if angles.size and angles.max() >= _MAX_ANGLE:
        raise ValueError(f"angles reach {angles.max()}, beyond {_MAX_ANGLE}")
    turns = np.rint(angles * (2.0 / np.pi))
    rest = angles
    for part in _HALF_PI:
        rest = rest - turns * part
    square = rest * rest
    sine = _polynomial(_SINE, square) * rest
    cosine = _polynomial(_COSINE, square)
    quarter = turns.astype(np.int64) & 3
    signs = np.where(quarter >= 2, -1.0, 1.0)
    odd = (quarter & 1).astype(bool)
    return (
        np.where(odd, -sine, cosine) * signs,
        np.where(odd, cosine, sine) * signs,
    )


def _polynomial(coefficients: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    total = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate heads by their positions, computed in float32.

    Args:
        x: [B, T, heads, d].
        cosine, sine: as ``rope_table`` gives them, broadcast to [B, T, 1, d].

    Returns:
        as ``x``, in its dtype.
    """
    if not torch.is_grad_enabled():
        return _turn(x, cosine, sine)
    out: Tensor = _Rotation.apply(x, cosine, sine)
    return out


class _Rotation(torch.autograd.Function):
    """Its gradient is the rotation back, so nothing but the table has to be kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        return _turn(x, cosine, sine)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.saved_tensors
        return _turn(gradients[0], cosine, -sine), None, None


def _turn(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return (x * cosine + torch.cat((second, first), dim=-1) * sine).to(x.dtype)
