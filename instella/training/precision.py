"""The numbers a training stage computes with; weights and moments stay float32.

``bfloat16`` is mixed precision as published (recipe facts D, amp_bf16): the forward and the
backward pass in bfloat16 copies of the weights, each micro-batch's gradients turned into
float32 before anything is added to them. Norms and losses are float32 inside.
"""

import copy
from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def as_computed(network: Network, precision: str) -> Network:
    """The network as a stage of this precision computes with it: itself, or a copy.

    Args:
        network: float32.
        precision: a name of ``DTYPES``.
    """
    dtype = DTYPES[precision]
    return network if dtype is torch.float32 else copy.deepcopy(network).to(dtype)
