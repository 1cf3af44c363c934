"""CPU time of a training step with the step ledger against one without.

    .venv/bin/python -m benchmarks.ledger_cost [--pairs N]

Model, batch, optimizer and ``ledger_every`` are those of the tiny recipe's first stage. In
one process blocks of ``ledger_every`` steps run in turn with and without the ledger, so that
each block with it holds one line with digests of all tensors, and other load on the machine
meets both alike. Beside the ratio of their CPU times stands that of a block with the ledger
to the same block without the seconds spent in it, which other load moves less.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.harness import record
from instella import numerics
from instella.prove.copies import PROJECT
from instella.recipe.reader import read_recipe
from instella.recipe.settings import Recipe

TARGET = 1.05
WARM_UP = 2
WINDOWS = 64


def main() -> int:
    """Measure and record; 1 when the median ratio is above the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=25)
    pairs = parser.parse_args().pairs
    recipe = read_recipe(PROJECT / "recipes" / "tiny.yaml")
    numerics.apply_environment(recipe.numerics)
    with tempfile.TemporaryDirectory(prefix="ledger-cost-") as temporary:
        block = make_block(recipe, Path(temporary))
        for _ in range(WARM_UP):
            block(True)
            block(False)
        measured = [(*block(True), block(False)[0]) for _ in range(pairs)]
    every = recipe.stages.pretrain_stage1.training.ledger_every
    turns = sorted(whole / without for whole, _, without in measured)
    inside = sorted(whole / (whole - ledger) for whole, ledger, _ in measured)
    milliseconds = [1000 * statistics.median(side) / every for side in zip(*measured, strict=True)]
    ratio = statistics.median(inside)
    lines = [
        f"- pairs of {every} steps: {pairs}, tensors digested once in each {every}",
        f"- CPU time a step: with the ledger {milliseconds[0]:.2f} ms, of which "
        f"{milliseconds[1]:.2f} ms in the ledger; without {milliseconds[2]:.2f} ms",
        f"- in turn, median ratio: {statistics.median(turns):.3f}, "
        f"{turns[0]:.3f} to {turns[-1]:.3f}",
        f"- within a block, median ratio: {ratio:.3f}, {inside[0]:.3f} to {inside[-1]:.3f} "
        f"(target: at most {TARGET})",
    ]
    record("The step ledger's share of a training step", lines)
    return int(ratio > TARGET)


def make_block(recipe: Recipe, folder: Path) -> Callable[[bool], tuple[float, float]]:
    """A function that runs one block of steps: CPU seconds, and those of them in the ledger."""
    import numpy as np

    from instella import canonical
    from instella.network.init import initialize
    from instella.network.network import Instella
    from instella.stages.pretrain import Windows
    from instella.training.generators import seed_generators
    from instella.training.ledger import Ledger
    from instella.training.loop import Trainer, ledger_fields
    from instella.training.order import Cursor

    chosen = recipe.stages.pretrain_stage1
    training = chosen.training
    length = WINDOWS * chosen.data.sequence_length
    tokens = np.random.default_rng(1).integers(2, recipe.model.vocab_size, length)
    canonical.write_npy(folder / "tokens.npy", tokens.astype(np.uint16))
    windows = Windows(folder / "tokens.npy", chosen, recipe.model.vocab_size)
    network = Instella(recipe.model, recipe.numerics)
    initialize(network, chosen.init_seed)
    cursor = Cursor(windows.count, training.global_batch, training.seed, epochs=1 << 16)
    trainer = Trainer(network, training.optimizer, training.schedule, cursor.total_steps)
    ledger = Ledger(training.ledger_every, cursor.total_steps, kept=True)

    def block(with_ledger: bool) -> tuple[float, float]:
        started, inside = time.process_time(), 0.0
        for step in range(2, training.ledger_every + 2):  # not the first: that one is due too
            epoch, examples = cursor.at(trainer.step)
            before = time.process_time()
            if with_ledger:
                seed_generators(training.seed, trainer.step)
            inside += time.process_time() - before
            figures = trainer.update(windows.batch(examples).micro_batches, windows.loss)
            before = time.process_time()
            if with_ledger:
                streams = [cursor.stream(epoch)]
                fields = partial(ledger_fields, epoch, examples, streams, [figures])
                ledger.add(step, fields, trainer.tensors)
            inside += time.process_time() - before
        return time.process_time() - started, inside

    return block


if __name__ == "__main__":
    sys.exit(main())
