"""Runs in verl's environment: two ranks train a model a little and keep verl's own checkpoint.

    .venvs/verl/bin/python -P verl_shards.py START TARGET [DTYPE]

Writes ``TARGET/global_step_2`` with verl's FSDP2 wrapper and checkpoint manager, and beside it
``expected.safetensors``, the weights in full as rank 0 has them.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from omegaconf import OmegaConf
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import AutoModelForCausalLM
from verl.utils import hf_tokenizer
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.fsdp_utils import apply_fsdp2

RANKS = 2
CONTENTS = ["model", "optimizer", "extra", "hf_model"]


def run(rank: int, start: str, target: str, dtype: torch.dtype) -> None:
    """One rank: two updates, one checkpoint."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{target}/rendezvous", rank=rank, world_size=RANKS
    )
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("fsdp",))
    model = AutoModelForCausalLM.from_pretrained(start, attn_implementation="sdpa", dtype=dtype)
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    apply_fsdp2(model, {"mesh": mesh, "mp_policy": policy}, OmegaConf.create({}))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(2):
        generator = torch.Generator().manual_seed(step)
        ids = torch.randint(2, 400, (2, 16), generator=generator)
        model(input_ids=ids).logits.float().logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    manager = FSDPCheckpointManager(
        model=model,
        optimizer=optimizer,
        processing_class=hf_tokenizer(start),
        checkpoint_config=OmegaConf.create({"save_contents": CONTENTS, "load_contents": CONTENTS}),
    )
    folder = Path(target, "global_step_2")
    manager.save_checkpoint(str(folder / "actor"), global_step=2)
    full = {name: value.full_tensor().contiguous() for name, value in model.state_dict().items()}
    if rank == 0:
        torch.save({}, folder / "data.pt")
        save_file(full, Path(target, "expected.safetensors"))
    dist.barrier()


if __name__ == "__main__":
    words = (*sys.argv[1:3], getattr(torch, sys.argv[3]))
    torch.multiprocessing.start_processes(run, words, RANKS, start_method="fork")
