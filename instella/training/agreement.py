"""Do all ranks start with the same? Each sends digests, and a difference names the rank."""

import os
from collections.abc import Mapping

import torch
import torch.distributed as dist

from instella import numerics
from instella.artifacts.code import source_digest
from instella.artifacts.identity import PACKAGE_FOLDER
from instella.artifacts.job import Job
from instella.errors import VerificationError
from instella.merkle import DIGEST_BYTES
from instella.training.ledger import numbers_digest
from instella.training.reduction import Group

# The package as it is when this process imports it: ranks start one after the other, and each
# imports what it finds, which may have been edited since rank 0 did.
CODE = source_digest(PACKAGE_FOLDER)


def starting_facts(job: Job, step: int, tensors: str) -> dict[str, str]:
    """Digests, 64 hex digits, of what has to be equal on every rank before the first step.

    Args:
        job: its settings and numerics class.
        step: updates done before.
        tensors: digest of weights and moments.
    """
    environment = {name: os.environ.get(name, "") for name in numerics.pins(job.numerics)}
    state = [
        job.numerics,
        environment,
        torch.__version__,
        torch.get_num_threads(),
        str(torch.get_default_dtype()),
        torch.backends.cpu.get_cpu_capability(),
    ]
    return {
        "code": CODE,
        "settings": numbers_digest("settings", [job.stage, repr(sorted(job.settings.items()))]),
        "numerics state": numbers_digest("numerics", state),
        "step": numbers_digest("step", step),
        "weights and moments": tensors,
    }


def check_agreement(group: Group, facts: Mapping[str, str]) -> None:
    """Compare what every rank starts with.

    Args:
        group: the processes; each calls this at the same time.
        facts: digest by name, 64 hex digits, with the same names in every rank.

    Raises:
        VerificationError: the first rank that differs from rank 0, and in what; in all ranks.
    """
    if group.ranks == 1:
        return
    own = torch.frombuffer(bytearray(bytes.fromhex("".join(facts.values()))), dtype=torch.uint8)
    every = [torch.empty_like(own) for _ in range(group.ranks)]
    dist.all_gather(every, own)
    for rank in range(1, group.ranks):
        same = (every[rank] == every[0]).view(-1, DIGEST_BYTES).all(dim=1).tolist()
        odd = [name for name, equal in zip(facts, same, strict=True) if not equal]
        if odd:
            raise VerificationError(
                f"rank {rank} starts with other {' and '.join(odd)} than rank 0: all ranks must "
                "read the same files with the same code, so run the stage again"
            )
