"""Trains Instella 3B for a few steps on one GPU: speed, memory, and whether the bytes repeat.

For any machine with one GPU and a Python with torch and safetensors: no network, nothing else of
the kit. Copy this one file there and run it:

    python gpu_check.py

It trains with random weights and tokens at the micro-batch of the recipe's first stage, three
times: from the start, from the start again, and from a checkpoint of the first. Weights and
moments are float32, products bfloat16 (autocast), layers are computed again in the backward pass.
It prints one line of JSON. On a machine without a GPU it says so and ends with status 0.
"""

import argparse
import hashlib
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

# As in instella/numerics.py, which a test compares; they act only before torch is imported.
COMMON = {
    "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "PYTORCH_TUNABLEOP_ENABLED": "0",
    "TORCHINDUCTOR_DETERMINISTIC": "1",
}  # fmt: skip
ROCM = {
    **COMMON, "FLASH_ATTENTION_TRITON_AMD_ENABLE": "FALSE", "RCCL_MSCCLPP_ENABLE": "0",
    "RCCL_MSCCL_ENABLE": "0", "ROCBLAS_DEFAULT_ATOMICS_MODE": "0",
    "TENSILE_SOLUTION_SELECTION_METHOD": "0", "TORCH_BLAS_PREFER_HIPBLASLT": "0",
}  # fmt: skip
CUDA = {**COMMON, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NVIDIA_TF32_OVERRIDE": "0"}
if __name__ == "__main__":
    # other files of this folder bear names of Python's own library
    del sys.path[0]
    os.environ.update(ROCM if Path("/dev/kfd").exists() else CUDA)

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.functional import (  # noqa: E402
    cross_entropy,
    rms_norm,
    scaled_dot_product_attention,
    silu,
)
from torch.utils.checkpoint import checkpoint  # noqa: E402

# width, of the MLP, layers, heads, vocabulary, tokens of a sequence, sequences of a micro-batch:
# the model and the first stage of recipes/instella-3b.yaml
SIZES = {"3b": (2560, 6912, 36, 32, 50304, 4096, 8), "small": (64, 96, 2, 4, 128, 32, 2)}
# Dense bfloat16 operations a second: MI300X 1307.4e12 and H100, H200 989.4e12 (makers' sheets).
PEAKS = {"MI300X": 1307.4e12, "H100": 989.4e12, "H200": 989.4e12}
RATE, BETAS, EPSILON, DECAY, CLIP, SEED = 4.0e-4, (0.9, 0.95), 1.0e-8, 0.1, 1.0, 6198
THETA, NORM_EPSILON, DEVIATION = 10000.0, 1.0e-5, 0.02


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x.float(), self.weight.shape, None, NORM_EPSILON).to(x.dtype) * self.weight


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(width, width, bias=False))
        self.q_norm, self.k_norm, self.heads = Norm(width), Norm(width), heads

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:2], self.heads, -1)
        query = rotate(self.q_norm(self.q_proj(x)).view(shape).transpose(1, 2))
        key = rotate(self.k_norm(self.k_proj(x)).view(shape).transpose(1, 2))
        value = self.v_proj(x).view(shape).transpose(1, 2)
        query, key = query.to(value.dtype), key.to(value.dtype)
        out = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(x.shape))


class MLP(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(width, heads), MLP(width, inner)
        self.pre_attention_layernorm, self.pre_feedforward_layernorm = Norm(width), Norm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.pre_attention_layernorm(x))
        return x + self.mlp(self.pre_feedforward_layernorm(x))


class Network(nn.Module):
    """Instella, with the parameter names of the published checkpoints."""

    def __init__(self, width: int, inner: int, layers: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(vocabulary, width)
        self.model.layers = nn.ModuleList(Layer(width, inner, heads) for _ in range(layers))
        self.model.norm = Norm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Final states [B, T, width] of tokens [B, T]."""
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.model.norm(x)


def rotate(x: Tensor) -> Tensor:
    """Rotary embedding of [B, heads, T, d], computed in float32."""
    half = x.shape[-1] // 2
    steps = torch.arange(half, dtype=torch.float32, device=x.device)
    angles = torch.arange(x.shape[2], device=x.device)[:, None] * THETA ** (-steps / half)
    first, second = x.float().split(half, -1)
    cosine, sine = angles.cos(), angles.sin()
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return torch.cat(turned, -1).to(x.dtype)


def summed_loss(network: Network, ids: Tensor) -> Tensor:
    """Mean loss of the next token; one sequence's logits exist at a time."""
    states = network(ids)

    def of_one(row: Tensor, wanted: Tensor) -> Tensor:
        return cross_entropy(network.lm_head(row).float(), wanted, reduction="sum")

    parts = [
        checkpoint(of_one, row[:-1], wanted[1:], use_reentrant=False)
        for row, wanted in zip(states, ids, strict=True)
    ]
    return torch.stack(parts).sum() / (ids.shape[0] * (ids.shape[1] - 1))


class Run:
    """A network and its optimizer on a device."""

    def __init__(self, size: str, device: str) -> None:
        *shape, self.vocabulary, self.length, self.rows = SIZES[size]
        torch.manual_seed(SEED)
        with torch.device(device):
            self.network = Network(*shape, self.vocabulary)
        for parameter in self.network.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=DEVIATION)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), RATE, BETAS, EPSILON, DECAY, foreach=True
        )
        self.device, self.step, self.seconds = device, 0, []

    def update(self) -> dict[str, str]:
        """One update; loss, norm of the gradient and SHA-256 of the weights."""
        generator = torch.Generator().manual_seed(SEED + self.step)
        ids = torch.randint(self.vocabulary, (self.rows, self.length), generator=generator)
        ids = ids.to(self.device)
        self._wait()
        start = time.perf_counter()
        with torch.autocast(self.device, torch.bfloat16):
            loss = summed_loss(self.network, ids)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._wait()
        self.seconds.append(time.perf_counter() - start)
        self.step += 1
        found = hashlib.sha256()
        for name, tensor in sorted(self.network.state_dict().items()):
            found.update(name.encode())
            found.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return {"loss": loss.item().hex(), "norm": norm.item().hex(), "sha256": found.hexdigest()}

    def save(self, file: Path) -> None:
        """Weights and moments, float32."""
        tensors = dict(self.network.state_dict())
        for name, parameter in self.network.named_parameters():
            for kind in ("exp_avg", "exp_avg_sq"):
                tensors[f"{kind}.{name}"] = self.optimizer.state[parameter][kind]
        save_file(tensors, file)

    def load(self, file: Path, step: int) -> None:
        """Go on after ``step``."""
        tensors = load_file(file, device=self.device)
        for name, parameter in self.network.named_parameters():
            parameter.data.copy_(tensors[name])
            kept = {kind: tensors[f"{kind}.{name}"] for kind in ("exp_avg", "exp_avg_sq")}
            self.optimizer.state[parameter] = {**kept, "step": torch.tensor(float(step))}
        self.step = step

    def flops(self) -> float:
        """Operations of a token, forward and backward: 6 N + 12 L h T (arXiv 2204.02311, B)."""
        weights = sum(p.numel() for p in self.network.parameters())
        width, layers = self.network.lm_head.in_features, len(self.network.model.layers)
        return 6.0 * (weights - self.vocabulary * width) + 12.0 * layers * width * self.length

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def main(words: list[str] | None = None) -> int:
    """Check the machine; status 1 where the bytes do not repeat."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4, help="updates, 2 or more")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=tuple(SIZES), default="3b")
    parser.add_argument("--folder", help="for the checkpoint; 3B needs 37 GB")
    parser.add_argument("--peak", type=float, help="bfloat16 operations a second, for the MFU")
    args = parser.parse_args(words)
    if args.steps < 2:
        parser.error("--steps must be 2 or more")
    if args.device == "cuda" and not torch.cuda.is_available():
        print("gpu_check: torch sees no GPU here, so nothing was run")
        return 0
    torch.use_deterministic_algorithms(True)
    folder = Path(tempfile.mkdtemp(prefix="gpu-check-", dir=args.folder))
    try:
        result = check(args, folder / "step.safetensors")
    finally:
        shutil.rmtree(folder)
    print(json.dumps(result, sort_keys=True))
    return 0 if result["repeats"] and result["resumes"] else 1


def check(args: argparse.Namespace, file: Path) -> dict[str, object]:
    """Three runs, one after the other, and what they tell."""
    half = args.steps // 2
    run = Run(args.size, args.device)
    first = []
    for step in range(args.steps):
        first.append(run.update())
        if step + 1 == half:
            run.save(file)
    # the first update also warms up
    spent, tokens, flops = run.seconds[1:], run.rows * run.length, run.flops()
    speed = tokens * len(spent) / sum(spent)
    on_gpu = args.device == "cuda"
    peak_bytes = (
        torch.cuda.max_memory_allocated()
        if on_gpu
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    del run
    run = Run(args.size, args.device)
    second = [run.update() for _ in range(args.steps)]
    del run
    run = Run(args.size, args.device)
    run.load(file, half)
    resumed = [run.update() for _ in range(args.steps - half)]
    name = torch.cuda.get_device_name() if on_gpu else "CPU"
    peak = args.peak or next((value for key, value in PEAKS.items() if key in name), None)
    return {
        "device": name,
        "torch": torch.__version__,
        "size": args.size,
        "micro_batch": run.rows,
        "tokens_per_second": round(speed, 1),
        "mfu": round(flops * speed / peak, 4) if peak else None,
        "peak_bytes": peak_bytes,
        "repeats": first == second,
        "resumes": first[half:] == resumed,
        "first_other_step": next((i + 1 for i in range(args.steps) if first[i] != second[i]), None),
        "steps": first,
    }


if __name__ == "__main__":
    sys.exit(main())
