"""Wall time of a training stage with one rank and with two, on two cores, same bytes.

    .venv/bin/python -m benchmarks.ranks [--pairs N] [--steps N]

The stage is pretraining with the model and batch of ``recipes/tiny.yaml`` on random tokens,
each time in a process of its own: starting Python and the second rank counts. One rank and
two take turns; the figure is the median ratio.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import record
from instella.canonical import sha256_file
from instella.prove.copies import PROJECT
from instella.prove.processes import run

NUMERICS = "portable-x86"
TIMEOUT_SECONDS = 600.0
VOCABULARY, LENGTH, BATCH = 1024, 128, 8


def main() -> int:
    """Measure and record; 1 when two ranks are no faster or make other bytes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--stage", nargs=2, metavar=("RANKS", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stage:
        train(int(args.stage[0]), Path(args.stage[1]), args.steps)
        return 0
    with tempfile.TemporaryDirectory(prefix="ranks-") as temporary:
        measured = [
            [stage(ranks, Path(temporary, f"{pair}-{ranks}"), args.steps) for ranks in (1, 2)]
            for pair in range(args.pairs)
        ]
    weights = {digest for pair in measured for _, digest in pair}
    alone, shared = (statistics.median(pair[side][0] for pair in measured) for side in (0, 1))
    ratio = statistics.median(pair[1][0] / pair[0][0] for pair in measured)
    lines = [
        f"- pairs: {args.pairs}; steps of the stage: {args.steps}",
        f"- one rank: {alone:.1f} s",
        f"- two ranks: {shared:.1f} s",
        f"- median ratio: {ratio:.3f} (target: below 1)",
        f"- weights: {'the same' if len(weights) == 1 else '**different**'}",
    ]
    record("Wall time of a training stage with two ranks against one", lines)
    return int(ratio >= 1 or len(weights) != 1)


def stage(ranks: int, folder: Path, steps: int) -> tuple[float, str]:
    """Wall seconds of a stage, and the SHA-256 of its weights.

    Raises:
        RuntimeError: the stage failed.
    """
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks.ranks", "--steps", str(steps)]
    done = run([*command, "--stage", str(ranks), str(folder)], PROJECT, TIMEOUT_SECONDS)
    if done.code:
        raise RuntimeError(f"{ranks} ranks: the stage ended with {done.code}\n{done.err}")
    return done.wall, sha256_file(folder / "output" / "model.safetensors")


def train(ranks: int, folder: Path, steps: int) -> None:
    """Run the stage in this process, as ``instella stage`` does."""
    from instella import numerics

    numerics.apply_environment(NUMERICS)

    import numpy as np

    from benchmarks.stage_jobs import job_of, pretrain_inputs
    from instella.recipe import settings
    from instella.stages import pretrain

    random = np.random.Generator(np.random.Philox(key=1))
    tokens = random.integers(0, VOCABULARY, size=steps * BATCH * LENGTH, dtype=np.uint16)
    training = settings.Training(
        global_batch=BATCH,
        micro_batch=2,
        optimizer=settings.Optimizer(learning_rate=0.005),
        schedule=settings.Schedule(kind="linear"),
        seed=6198,
    )
    chosen = settings.Pretrain(settings.PretrainData(LENGTH, ()), training)
    model = settings.Model(64, 176, 2, 2, VOCABULARY, 512)
    inputs = pretrain_inputs(folder, tokens)
    job = job_of("ranks", {"model": model, "pretrain": chosen}, inputs, folder, NUMERICS, ranks)
    pretrain.run(job)


if __name__ == "__main__":
    sys.exit(main())
