"""CPU time of a training step in ``portable-x86`` against stock torch, on the same shapes.

    .venv/bin/python -m benchmarks.portable_step [--pairs N] [--turns N]

Both sides are the kit's own training step with one thread, each in a process of its own.
They take turns, so that other load on the machine meets both alike. Stock torch runs with
the library's own products and without the variables that pin the bits. The figure is the
median ratio of the CPU times of a turn.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import record
from instella.prove.copies import PROJECT
from instella.prove.processes import environment

TARGET = 1.5
PORTABLE, STOCK = "portable-x86", "native-cpu"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SEED = 7


@dataclass(frozen=True)
class Shape:
    """A network, the batch of a step, and how many steps a turn takes."""

    hidden: int
    inner: int
    layers: int
    heads: int
    vocabulary: int
    length: int
    windows: int
    micro_batches: int
    steps: int


# "tiny" is the model and the pretraining batch of recipes/tiny.yaml.
SHAPES = {
    "tiny": Shape(64, 176, 2, 2, 1024, 128, 2, 4, 5),
    "larger": Shape(256, 704, 4, 4, 4096, 256, 4, 1, 1),
}


def main() -> int:
    """Measure and record; 1 when a median ratio is above the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3, help="pairs of processes for each shape")
    parser.add_argument("--turns", type=int, default=11, help="turns of each pair")
    parser.add_argument("--serve", nargs=2, metavar=("CLASS", "SHAPE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(*args.serve)
        return 0
    lines, worst = [], 0.0
    for shape in SHAPES:
        turns = [turn for _ in range(args.pairs) for turn in compare(shape, args.turns)]
        ratios = sorted(portable / stock for portable, stock in turns)
        portable, stock = (1000 * statistics.median(side) for side in zip(*turns, strict=True))
        quarter = len(ratios) // 4
        worst = max(worst, statistics.median(ratios))
        lines.append(
            f"| {shape} | {portable:.1f} | {stock:.1f} | {statistics.median(ratios):.3f} "
            f"| {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f} |"
        )
    head = [
        f"- pairs of processes: {args.pairs}, turns of each: {args.turns}",
        f"- target: a median ratio of at most {TARGET}",
        "",
        "| shape | portable-x86, ms | stock, ms | median ratio | middle half |",
        "|---|---|---|---|---|",
    ]
    record("CPU time of a training step, portable-x86 against stock torch", [*head, *lines])
    return int(worst > TARGET)


def compare(shape: str, turns: int) -> list[tuple[float, float]]:
    """CPU seconds of a step on both sides, portable first, for each turn."""
    with side(PORTABLE, shape) as portable, side(STOCK, shape) as stock:
        return [(ask(portable), ask(stock)) for _ in range(turns)]


@contextmanager
def side(numerics_class: str, shape: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that trains when asked to, its caches filled."""
    command = [sys.executable, "-m", "benchmarks.portable_step", "--serve", numerics_class, shape]
    process = subprocess.Popen(
        command, cwd=PROJECT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment(ONE_THREAD if numerics_class == STOCK else None),
    )  # fmt: skip
    try:
        ask(process)
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process: "subprocess.Popen[str]") -> float:
    """CPU seconds of one step, the mean over a turn.

    Raises:
        RuntimeError: the process ended; why stands on stderr.
    """
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"a training process ended with {process.wait()}")
    return float(answer)


def serve(numerics_class: str, name: str) -> None:
    """Train a turn for each line of the input; answer with CPU seconds of a step."""
    shape = SHAPES[name]
    step = training_step(numerics_class, shape)
    for _ in sys.stdin:
        before = time.process_time()
        for _ in range(shape.steps):
            step()
        print((time.process_time() - before) / shape.steps, flush=True)


def training_step(numerics_class: str, shape: Shape) -> Callable[[], Any]:
    """A function that does one step of the kit's trainer on fixed random tokens.

    Torch is imported here, after the variables of the class are set. Stock torch gets none.
    """
    from instella import numerics

    if numerics_class == PORTABLE:
        numerics.apply_environment(PORTABLE)

    import numpy as np
    import torch

    from instella.network.init import initialize
    from instella.network.network import Instella
    from instella.recipe.settings import Model, Optimizer, Schedule
    from instella.training.loop import Trainer
    from instella.training.objectives import summed_loss
    from instella.training.projection import network_logprobs

    model = Model(
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        vocab_size=shape.vocabulary,
        max_position_embeddings=shape.length,
    )
    network = Instella(model, numerics_class)
    initialize(network, SEED)
    trainer = Trainer(network, Optimizer(learning_rate=1e-3), Schedule(kind="constant"), 10**6)
    random = np.random.Generator(np.random.Philox(key=SEED))
    size = (shape.micro_batches, shape.windows, shape.length)
    micro_batches = list(torch.from_numpy(random.integers(0, shape.vocabulary, size=size)))
    tokens = micro_batches[0].numel() * shape.micro_batches

    def loss(network: Any, micro_batch: torch.Tensor) -> tuple[torch.Tensor, dict[str, float]]:
        value = summed_loss(network_logprobs(network, micro_batch)) / tokens
        return value, {"loss": value.item()}

    return lambda: trainer.update(micro_batches, loss)


if __name__ == "__main__":
    sys.exit(main())
