"""Where networks of a numerics class lie.

Token ids, masks and what is computed from log-probabilities stay on the CPU; a network takes its
inputs to its own device, and whoever calls it takes the result back. **Untested on hardware.**
"""

import os
from functools import lru_cache

import torch

from instella.errors import BadUse
from instella.numerics import GPU_CLASSES

CPU = torch.device("cpu")
# Of this rank among those of its machine, as torchrun and SLURM tell it.
LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID")


@lru_cache(maxsize=1)
def device_of(numerics: str) -> torch.device:
    """The CPU, or for a GPU class this rank's GPU, set up to repeat its bytes.

    torch then takes deterministic kernels, or raises where an operation has none, and no TF32
    (docs.pytorch.org, reproducibility, and ``torch.use_deterministic_algorithms``).

    Raises:
        BadUse: this machine has no GPU of the class.
    """
    if numerics not in GPU_CLASSES:
        return CPU
    require_gpu(numerics)
    local = next((os.environ[name] for name in LOCAL_RANKS if name in os.environ), "0")
    device = torch.device("cuda", int(local) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return device


def require_gpu(numerics: str) -> None:
    """Check that torch sees a GPU of the class.

    Raises:
        BadUse: none, or one of another architecture.
    """
    if not torch.cuda.is_available():
        raise BadUse(
            f"numerics class {numerics}: torch sees no GPU here; run the stage where one is (with "
            "container.accel set in a container), or choose numerics of a CPU in the recipe"
        )
    found = architecture()
    if found != numerics:
        raise BadUse(
            f"numerics class {numerics}: the GPU here is {found}; run the stage on the other kind, "
            "or choose its class in the recipe"
        )


def architecture() -> str:
    """Name of the first GPU's architecture: ``gfx942``, ``sm90``."""
    properties = torch.cuda.get_device_properties(0)
    if torch.version.hip:
        return str(properties.gcnArchName).partition(":")[0]
    return f"sm{properties.major}{properties.minor}"
