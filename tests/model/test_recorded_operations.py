"""No operation whose bits differ between CPUs runs where an artifact is made.

Every operation of real training steps, with each loss of the recipe, and of sampling is
listed by torch itself.
"""

from typing import Any

import numpy as np
import pytest
import torch
from model_helpers import SMALL, randomize
from torch.utils._python_dispatch import TorchDispatchMode

from instella import numerics
from instella.network.network import Instella
from instella.recipe.settings import Optimizer, Schedule
from instella.rollout.generate import generate
from instella.training.loop import Trainer
from instella.training.objectives import (
    masked_logprobs,
    policy_loss,
    preference_loss,
    summed_loss,
)
from instella.training.projection import network_logprobs

# MKL's square root is rounded differently on different CPUs, whatever MKL_CBWR says, and
# torch reaches it by many names. Products of torch's own are MKL's as well.
SQUARE_ROOTS = {"sqrt", "_foreach_sqrt", "std", "std_mean", "var", "norm", "linalg_vector_norm",
                "_foreach_norm", "hypot", "native_layer_norm", "addcdiv", "_foreach_addcdiv"}  # fmt: skip
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution"}
# Powers that torch turns into products; of RMSNorm and its gradient.
WHOLE = {1, 2, 3}
# These go to MKL's vector library: the same on every CPU in the branch of MKL_CBWR alone.
NEEDS_BRANCH = {"exp", "tanh", "erf", "log", "log2", "log10", "logsumexp", "sin", "cos", "tan"}


class Listing(TorchDispatchMode):
    """Names of the operations, and the exponents of powers."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.exponents: set[Any] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__.rstrip("_")
        self.names.add(name)
        if "pow" in name:
            self.exponents.add(args[1] if isinstance(args[1], float | int) else "tensor")
        return func(*args, **(kwargs or {}))


def next_token(network: Instella, ids: torch.Tensor) -> torch.Tensor:
    return summed_loss(network_logprobs(network, ids))


def preference(network: Instella, ids: torch.Tensor) -> torch.Tensor:
    mask = torch.ones_like(ids, dtype=torch.bool)
    chosen, rejected = masked_logprobs(network_logprobs(network, ids), mask, True).chunk(2)
    return preference_loss(chosen, rejected, chosen.detach(), rejected.detach(), 5.0).sum()


def policy(network: Instella, ids: torch.Tensor) -> torch.Tensor:
    logprobs = network_logprobs(network, ids)
    old = logprobs.detach() * 0.9
    mask = torch.ones_like(old, dtype=torch.bool)
    terms = policy_loss(
        logprobs, old, old, torch.ones(len(ids)), mask, clip_low=0.2, clip_high=0.28,
        dual_clip=3.0, kl_coefficient=0.1, normalizer=8.0,
    )  # fmt: skip
    return terms.loss


def listed_step(loss: Any) -> Listing:
    network = Instella(SMALL, "portable-x86")
    randomize(network)
    trainer = Trainer(network, Optimizer(learning_rate=0.1), Schedule(kind="constant"), 10)
    ids = np.random.Generator(np.random.Philox(key=4)).integers(0, SMALL.vocab_size, (2, 4, 12))

    def measured(network: Instella, ids: torch.Tensor) -> tuple[torch.Tensor, dict[str, float]]:
        value = loss(network, ids)
        return value, {"loss": value.item()}

    with Listing() as listing:
        trainer.update(list(torch.from_numpy(ids)), measured)
    return listing


def check(listing: Listing) -> None:
    assert not listing.names & SQUARE_ROOTS
    assert not listing.names & PRODUCTS
    assert listing.exponents <= WHOLE
    pins = numerics.pins("portable-x86")
    assert pins["MKL_CBWR"] == "COMPATIBLE" or not listing.names & NEEDS_BRANCH


@pytest.mark.parametrize("loss", [next_token, preference, policy])
def test_a_training_step(loss):
    listing = listed_step(loss)
    check(listing)
    # What has to be there: the list is that of the whole step, backward and update included.
    assert {"_linear_pointwise", "rsqrt", "_softmax_backward_data", "_fused_adamw"} <= listing.names
    assert ("exp" in listing.names) == (loss is policy)


def test_sampling():
    network = Instella(SMALL, "portable-x86")
    randomize(network)
    with Listing() as listing:
        generate(
            network, [[1, 2, 3], [4]], samples=2, max_new_tokens=4, temperature=1.0, top_p=0.9,
            eos_id=0, vocabulary=60, max_prompt_tokens=4, stream=[["a"], ["b"]],
        )  # fmt: skip
    check(listing)
    assert {"_linear_pointwise", "_softmax", "searchsorted"} <= listing.names


def test_a_square_root_would_be_noticed():
    listing = listed_step(lambda network, ids: next_token(network, ids).sqrt())
    with pytest.raises(AssertionError):
        check(listing)
    listing = listed_step(lambda network, ids: next_token(network, ids) ** 0.5)
    with pytest.raises(AssertionError):
        check(listing)
