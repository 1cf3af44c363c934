"""The global random generators: what they hold is a function of the seed and the step.

No stage means to draw from them; its random numbers come from named streams. Should a
library draw all the same, seeding before each step keeps a resumed run equal to one that
never stopped, and the step ledger shows the draw.
"""

import random

import numpy as np
import torch
from blake3 import blake3

from instella import canonical

_CONTEXT = "instella.training/1 seed of the global generators"


def seed_generators(seed: int, step: int) -> None:
    """Seed torch's CPU generator, numpy's legacy one and Python's for one step.

    Args:
        seed: of the stage.
        step: steps done before this one.
    """
    key = blake3(canonical.json_bytes([seed, step]), derive_key_context=_CONTEXT).digest()
    # not torch.manual_seed: that also queues work for GPUs that are not there
    torch.default_generator.manual_seed(int.from_bytes(key[:8], "little") >> 1)
    np.random.seed(int.from_bytes(key[8:12], "little"))
    random.seed(key)


def generator_states() -> list[bytes]:
    """States of torch's, numpy's and Python's global generators."""
    legacy = np.random.get_state(legacy=False)
    assert isinstance(legacy, dict)
    words = legacy["state"]
    tail = [int(words["pos"]), int(legacy["has_gauss"]), float(legacy["gauss"]).hex()]
    version, numbers, gauss = random.getstate()
    mark = [version, None if gauss is None else gauss.hex()]
    return [
        torch.get_rng_state().numpy().tobytes(),
        words["key"].astype("<u4").tobytes() + canonical.json_bytes(tail),
        np.array(numbers, dtype="<u4").tobytes() + canonical.json_bytes(mark),
    ]
