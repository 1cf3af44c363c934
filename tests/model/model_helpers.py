"""Small settings, and the reference data of the published code where it is there."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from instella.canonical import sha256_bytes
from instella.network.product import portable
from instella.recipe.settings import Model

REPOSITORY = Path(__file__).parents[2]
REFERENCE = REPOSITORY.parent / "shared" / "data" / "reference"

SMALL = Model(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    vocab_size=64,
    max_position_embeddings=40,
)
PINS = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1"}


def reference(name: str) -> Path:
    """Folder of reference data; skips the test where it is absent."""
    folder = REFERENCE / name
    if not folder.is_dir():
        pytest.skip(f"reference data {folder} is not here")
    return folder


def array(folder: Path, name: str) -> Tensor:
    return torch.from_numpy(np.load(folder / f"{name}.npy"))


def randomize(network: torch.nn.Module, seed: int = 0) -> None:
    """Fill matrices and norms alike, so that a forgotten weight shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            scale = 1.0 if parameter.ndim == 1 else parameter.shape[1] ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)


def product_digest() -> str:
    """SHA-256 over portable products and their gradients, at inputs equal everywhere."""
    generator = np.random.Generator(np.random.Philox(key=1))
    parts: list[Tensor] = []
    for rows, columns, depth in ((64, 96, 64), (256, 40, 700), (8, 512, 1100)):
        x, weight = (
            torch.from_numpy(generator.random((size, depth), dtype=np.float32)).requires_grad_()
            for size in (rows, columns)
        )
        out = portable(x, weight)
        parts += [out.detach(), *torch.autograd.grad(out, (x, weight), out.detach())]
    return sha256_bytes(b"".join(part.numpy().tobytes() for part in parts))


def run_python(code: str, **variables: str) -> str:
    """Output of a program in a process of its own with these variables added."""
    places = f"{REPOSITORY}:{Path(__file__).parent}"
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": places}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def tokenizer_files(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).write_text("{}\n")
    return folder
