"""The "mitchell" initialization of the published training (recipe facts A and C).

Every matrix is normal with standard deviation 1 / sqrt(its input width), cut at three
standard deviations; the projections that write into the residual stream are scaled by
another 1 / sqrt(2 (layer + 1)), layers counted from 0. Embedding and head use the hidden
width; norms start at 1.
"""

import hashlib
import math
import re

import numpy as np
import torch

from instella.network.network import Instella
from instella.recipe.settings import Model

CUT = 3.0

_RESIDUAL = re.compile(r"model\.layers\.(\d+)\.(?:self_attn\.o_proj|mlp\.down_proj)\.weight")


def initialize(network: Instella, seed: int) -> None:
    """Fill the parameters of a network in place.

    Each parameter draws from a stream of its own, keyed by seed and name: values do not
    depend on the order of parameters, on the device, or, before the last cast, on the
    dtype.

    Args:
        network: its parameters may have any floating dtype and device.
        seed: at least 0.
    """
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
                continue
            values = _cut_normal(seed, name, tuple(parameter.shape))
            values *= standard_deviation(name, network.settings)
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))


def standard_deviation(name: str, settings: Model) -> float:
    """Standard deviation, before the cut, of the matrix called ``name``."""
    narrow = settings.intermediate_size if "down_proj" in name else settings.hidden_size
    residual = _RESIDUAL.fullmatch(name)
    depth = 2 * (int(residual.group(1)) + 1) if residual else 1
    return 1.0 / math.sqrt(narrow * depth)


def _cut_normal(seed: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal float64, values beyond ``CUT`` drawn again from the same stream.

    numpy's ziggurat multiplies an integer by a constant; only the choice to keep a value
    uses exp, and its logarithm is for values that are cut anyway.
    """
    key = hashlib.sha256(f"{seed} {name}".encode()).digest()[:16]
    random = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
    values = random.standard_normal(math.prod(shape))
    outside = np.flatnonzero(np.abs(values) > CUT)
    while outside.size:
        values[outside] = random.standard_normal(outside.size)
        outside = outside[np.abs(values[outside]) > CUT]
    return values.reshape(shape)
