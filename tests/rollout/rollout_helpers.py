"""A small random network and prompts, for tests in this process and in pinned ones."""

import numpy as np
import torch

from instella.network.network import Instella
from instella.recipe.settings import Model

EOS = 0
VOCABULARY = 250
WIDTH = 12
NEW = 10


def network(numerics: str) -> Instella:
    """Weights from integers, so that they are the same everywhere."""
    shape = Model(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=256,
        max_position_embeddings=64,
    )
    model = Instella(shape, numerics).eval()
    generator = np.random.Generator(np.random.PCG64(7))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                values = generator.integers(-128, 128, parameter.shape) / 256.0
                parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    return model


def prompts(count: int) -> list[list[int]]:
    generator = np.random.Generator(np.random.PCG64(8))
    return [
        generator.integers(2, VOCABULARY, int(generator.integers(1, WIDTH + 1))).tolist()
        for _ in range(count)
    ]


def options(samples: int = 3, **changes):
    return {
        "samples": samples,
        "max_new_tokens": NEW,
        "temperature": 1.0,
        "top_p": 1.0,
        "eos_id": EOS,
        "vocabulary": VOCABULARY,
        "max_prompt_tokens": WIDTH,
        **changes,
    }
